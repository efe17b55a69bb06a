"""The images for arm64 start under qemu, on a machine of another architecture."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from harness.require import require
from harness.server_process import ServerProcess, free_port
from release.images import built, layers
from release.layout import Layout

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = Path(__file__).resolve().parents[2]
BINFMT: Final = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")
HOW_TO_REGISTER: Final = (
    "needs Debian's qemu-user-static and `mount -t binfmt_misc none /proc/sys/fs/binfmt_misc; "
    "cat /usr/lib/binfmt.d/qemu-aarch64.conf > /proc/sys/fs/binfmt_misc/register`"
)
PATH: Final = "/opt/barnabas/bin:/usr/bin"
TURN_CPU_S_MAX: Final = 60.0
"""qemu translates each instruction before it runs."""
RECORDS: Final = b"k1:v1\nk2:v2\n"


def unpacked(image: Layout, folder: Path) -> Path:
    """Return the root folder of a container of this image."""
    folder.mkdir()
    for layer in layers(image):
        subprocess.run(["tar", "--extract", f"--file={layer}", f"--directory={folder}"], check=True)
    return folder


def in_root(root: Path, *command: str) -> list[str]:
    """Return the command that runs `barnabas` in an unpacked image."""
    return [str(shutil.which("chroot")), str(root), "/opt/barnabas/bin/barnabas", *command]


def environment() -> dict[str, str]:
    return {"PATH": PATH, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.timeout(1200)
def test_the_images_for_arm64_start(tmp_path: Path) -> None:
    require(BINFMT.exists(), HOW_TO_REGISTER)
    require(shutil.which("kcat"), "kcat: apt-get install kcat")
    stage = tmp_path / "stage"
    stage.mkdir()
    subprocess.run(["bash", "-c", f"git archive HEAD | tar --extract --directory='{stage}'"], cwd=ROOT, check=True)
    images = built(stage, tmp_path, ("broker", "operator"), {})
    roots = {target: unpacked(each["arm64"], tmp_path / f"root-{target}") for target, each in images.items()}
    says = subprocess.run(
        in_root(roots["operator"], "operator", "--help"),
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "usage: barnabas operator" in says.stdout
    serves(roots["broker"])


def serves(root: Path) -> None:
    """Start the broker of an image, and send records through it."""
    port = free_port()
    properties = {"node.id": 1, "listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": "/var/lib/barnabas/logs"}
    text = "\n".join(f"{name}={value}" for name, value in properties.items())
    (root / "server.properties").write_text(text, encoding="utf-8")
    command = in_root(root, "broker", "/server.properties")
    server = ServerProcess(command, port, root.with_suffix(".log"), environment())
    server.turn_cpu_seconds_max = TURN_CPU_S_MAX
    server.start()
    try:
        kcat = ["kcat", "-b", f"127.0.0.1:{port}", "-t", "arm64", "-K:"]
        subprocess.run([*kcat, "-P"], input=RECORDS, check=True)
        read_back = subprocess.run([*kcat, "-C", "-e", "-q"], capture_output=True, check=True)
        assert read_back.stdout == RECORDS
    finally:
        server.close()
