"""Programs of Debian's packages, which are unpacked into the user's cache and not installed."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from harness.kept_builds import cache, locked
from local_kubernetes.binaries import CannotStart, require

IN_PACKAGE: Final = "usr/bin"
FETCH_SECONDS_MAX: Final = 300


def programs_of(package: str) -> Path:
    """Return the folder of the package's programs, fetched the first time. Raises CannotStart if that fails."""
    folder = cache() / package
    with locked(package):
        if not folder.exists():
            require("apt-get", "dpkg-deb")
            _fetch(package, folder)
    return folder


def _fetch(package: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        archive = _downloaded(package, place)
        if archive is None:
            _run(place, "apt-get", "update", "--quiet")
            archive = _downloaded(package, place)
        if archive is None:
            raise CannotStart(f"{package} is not on the machine, and apt-get download {package} brings none")
        unpacked = _run(place, "dpkg-deb", "--extract", str(archive), "unpacked")
        if unpacked.returncode != 0:
            raise CannotStart(f"{archive.name} cannot be unpacked: {unpacked.stderr[-1000:]}")
        partial = folder.with_suffix(f".{os.getpid()}")
        shutil.copytree(Path(place, "unpacked", IN_PACKAGE), partial)
        partial.rename(folder)


def _downloaded(package: str, place: str) -> Path | None:
    """Return the package's file; None if apt does not know it, because its lists must be fetched first."""
    _run(place, "apt-get", "download", "--quiet", package)
    return next(Path(place).glob("*.deb"), None)


def _run(place: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
