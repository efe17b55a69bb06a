"""Container images without a registry and without Docker; a node imports their archives before a pod names them.

`python -m e2e.images` builds all. `buildah` runs the project's own Dockerfiles; what they start from, Python on Debian,
is made of Debian's packages and carries the name that they expect. Storage and archives are in the user's cache.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from e2e.binaries import CannotStart, cache, locked, programs, require
from e2e.node import PAUSE_IMAGE

ROOT: Final = Path(__file__).resolve().parents[2]
BASE_IMAGE: Final = "docker.io/library/python:3.11-slim-bookworm"
BASE_PACKAGES: Final = ("ca-certificates", "netbase", "passwd", "python3", "python3-venv", "tzdata")
# As slim images leave out documentation; licences stay.
BASE_LEFT_OUT: Final = ("exclude=/usr/share/man/*", "exclude=/usr/share/locale/*", "exclude=/usr/share/doc/*")
BASE_KEPT: Final = ("include=/usr/share/doc/*/copyright",)
# A venv, so that pip puts packages where Python's own images do and not where Debian does.
BASE_HOOKS: Final = (
    'chroot "$1" python3 -m venv /usr/local',
    'rm -rf "$1"/var/lib/apt/* "$1"/var/cache/* "$1"/var/log/*',
)
BASE_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
IMAGES: Final = {"barnabas-broker": "broker/Dockerfile", "barnabas-operator": "operator/Dockerfile"}
TAG: Final = "dev"
BUILD_SECONDS_MAX: Final = 900
# Only while an image is built: how this machine reaches the package index, and whom it trusts.
TRUST: Final = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pip.conf"))


def reference(name: str) -> str:
    """What pods call one of IMAGES."""
    return f"docker.io/library/{name}:{TAG}"


def pause_archive() -> Path:
    """The image of the process that holds a pod's namespaces: one static program."""
    program = programs() / "pause"
    archive = program.with_name("pause.tar")
    if not archive.exists():
        partial = archive.with_suffix(f".{os.getpid()}")
        _write_archive(partial, PAUSE_IMAGE, "pause", program.read_bytes())
        partial.rename(archive)
    return archive


def base_archive() -> Path:
    """Python on Debian as an image of its own, for pods of tests. Raises CannotStart."""
    _check_machine()
    with locked("images"):
        return _saved(BASE_IMAGE, _made_base())


def project_archive(name: str) -> Path:
    """One of IMAGES, built where the sources are others than last time. Raises CannotStart."""
    _check_machine()
    dockerfile = ROOT / IMAGES[name]
    with locked("images"):
        base = _made_base()
        _buildah(
            "bud",
            "--pull-never",
            "--layers",
            *(f"--volume={path}:{path}:ro" for path in TRUST if path.exists()),
            f"--file={dockerfile}",
            f"--tag={reference(name)}",
            str(ROOT),
        )
        return _saved(reference(name), base + _image_id(reference(name)))


def _check_machine() -> None:
    if os.geteuid() != 0:
        raise CannotStart("images are built as root; `make e2e E2E=kind` builds them with Docker")
    require("buildah", "mmdebstrap")


def _made_base() -> str:
    """The image that the Dockerfiles start from, in buildah's storage; its id."""
    recipe = repr((BASE_PACKAGES, BASE_LEFT_OUT, BASE_KEPT, BASE_HOOKS, BASE_PATH))
    root = cache() / f"python-on-debian-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar"
    if not root.exists():
        _make_root(root)
    known = f"localhost/{root.stem}"
    if not _image_id(known):
        container = _buildah("from", "scratch")
        _buildah("add", "--quiet", container, str(root), "/")
        _buildah("config", "--env", f"PATH={BASE_PATH}", "--cmd", "python3", container)
        _buildah("commit", "--rm", "--quiet", container, known)
    _buildah("tag", known, BASE_IMAGE)
    return _image_id(known)


def _make_root(root: Path) -> None:
    partial = root.with_suffix(f".{os.getpid()}")
    options = [f"--dpkgopt=path-{rule}" for rule in (*BASE_LEFT_OUT, *BASE_KEPT)]
    hooks = [f"--customize-hook={hook}" for hook in BASE_HOOKS]
    packages = f"--include={','.join(BASE_PACKAGES)}"
    _run(
        "mmdebstrap",
        "--quiet",
        "--variant=essential",
        "--format=tar",
        packages,
        *options,
        *hooks,
        "bookworm",
        str(partial),
    )
    partial.rename(root)


def _saved(image: str, digest: str) -> Path:
    """The archive of an image in buildah's storage; archives of what it was before go."""
    name = image.rpartition("/")[2].partition(":")[0]
    archive = cache() / f"{name}-{hashlib.sha256(digest.encode()).hexdigest()[:12]}.image"
    if not archive.exists():
        for old in cache().glob(f"{name}-*.image"):
            old.unlink()
        partial = archive.with_suffix(f".{os.getpid()}")
        _buildah("push", "--quiet", image, f"docker-archive:{partial}:{image}")
        partial.rename(archive)
    return archive


def _image_id(image: str) -> str:
    """Empty where there is no such image."""
    found = json.loads(_buildah("images", "--json"))
    return next((each["id"] for each in found if image in _names(each)), "")


def _names(image: dict[str, list[str] | None]) -> Iterator[str]:
    for name in image["names"] or ():
        yield name
        yield name.removesuffix(":latest")


def _buildah(*arguments: str) -> str:
    storage = cache() / "containers"
    folders = [f"--root={storage}", f"--runroot={storage}-run"]
    # Of its own mounts nothing is left on the machine.
    return _run("unshare", "--mount", "buildah", *folders, "--storage-driver=overlay", *arguments).strip()


def _run(*command: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, "BUILDAH_ISOLATION": "chroot"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if done.returncode != 0:
        raise CannotStart(f"{command[0]} failed: {done.stdout[-1500:]}{done.stderr[-1500:]}")
    return done.stdout


def _write_archive(archive: Path, image: str, name: str, program: bytes) -> None:
    """As `docker save` writes an image that is a single program."""
    layer = _tar({name: program})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [image], "Layers": ["layer.tar"]}]
    files = {"config.json": config, "manifest.json": manifest}
    texts = {path: json.dumps(value).encode() for path, value in files.items()}
    archive.write_bytes(_tar({"layer.tar": layer, **texts}))


def _tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def main() -> None:
    began_s = time.monotonic()
    for make in (pause_archive, base_archive, *(lambda name=name: project_archive(name) for name in IMAGES)):
        archive = make()
        megabytes = archive.stat().st_size / 1e6
        print(f"{time.monotonic() - began_s:6.1f} s  {archive}  {megabytes:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
