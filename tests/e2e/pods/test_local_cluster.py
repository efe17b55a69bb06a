"""The local cluster goes as it came: what it changed on the machine is as before, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.binaries import CannotStart
from e2e.local import NETWORK_FILE
from e2e.node import MACHINE_SETTINGS, check_machine
from harness.deadline import wait_for
from harness.require import missing

TESTS = Path(__file__).resolve().parents[2]
OWNER = """
import signal, sys
from pathlib import Path
from e2e.local import LocalCluster
LocalCluster.begin(Path(sys.argv[1]), outlive=False).up()
print("up", flush=True)
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster of the test's own is; ended after it if it still is there."""
    if os.environ.get("E2E") != "local":
        pytest.skip("the cluster is not local")
    try:
        check_machine()
    except CannotStart as reason:
        missing(reason)
    folder = tmp_path / "cluster"
    yield folder
    if (folder / NETWORK_FILE).exists():
        _local(folder, "down")


def _local(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "e2e.local", f"--folder={folder}", *arguments]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _settings() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text(encoding="ascii") for name in MACHINE_SETTINGS}


def _traces(number: str, folder: Path) -> list[str]:
    """What would tell that a cluster of this number is or was here."""
    commands = [path.parent / "cmdline" for path in Path("/proc").glob("[0-9]*/exe")]
    processes = [path.read_bytes().replace(b"\0", b" ").decode() for path in commands if path.exists()]
    looks = (["ip", "-o", "link"], ["ip", "route"], ["mount"], ["iptables-save"])
    lines = [line for look in looks for line in subprocess.check_output(look, text=True).splitlines()]
    words = (f"e2e{number}-", f"10.200.{number}.", f"10.201.{number}.", f"10.202.{number}.", str(folder))
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/barnabas-e2e{number}-*")]
    return [line for line in (*processes, *lines, *cgroups) if any(word in line for word in words)] + cgroups


def test_a_cluster_that_goes_down_leaves_the_machine_as_it_was(folder: Path) -> None:
    before = _settings()
    _local(folder, "up", "--nodes=2")
    number = (folder / NETWORK_FILE).read_text(encoding="ascii")
    assert "ended" not in _local(folder, "status")
    assert _traces(number, folder)
    assert _settings() == before
    _local(folder, "down")
    assert not folder.exists()
    assert not _traces(number, folder)
    assert _settings() == before


def test_a_cluster_whose_owner_is_killed_keeps_no_process_and_no_address(folder: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        owner.send_signal(signal.SIGKILL)
    number = (folder / NETWORK_FILE).read_text(encoding="ascii")
    wait_for(
        lambda: [line for line in _traces(number, folder) if "cgroup" not in line],
        lambda traces: not traces,
        seconds_max=60,
    )
