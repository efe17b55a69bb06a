"""prometheus and promtool: the machine's own, or those of Debian's package, which is unpacked and not installed.

`python -m monitoring.prometheus_programs` fetches them ahead and prints the folder.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from local_kubernetes.binaries import CannotStart, cache, locked, require

PACKAGE: Final = "prometheus"
IN_PACKAGE: Final = "usr/bin"
PROGRAMS: Final = ("prometheus", "promtool")
FETCH_SECONDS_MAX: Final = 300


def prometheus_programs() -> Path:
    """The folder with both. Raises CannotStart where they cannot be had."""
    found = shutil.which("prometheus")
    if found and shutil.which("promtool"):
        return Path(found).parent
    folder = cache() / "prometheus"
    with locked("prometheus"):
        if not folder.exists():
            require("apt-get", "dpkg-deb")
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        package = _downloaded(place)
        if package is None:
            _run(place, "apt-get", "update", "--quiet")
            package = _downloaded(place)
        if package is None:
            raise CannotStart(f"prometheus is not on the machine, and apt-get download {PACKAGE} brings none")
        unpacked = _run(place, "dpkg-deb", "--extract", str(package), "unpacked")
        if unpacked.returncode != 0:
            raise CannotStart(f"{package.name} cannot be unpacked: {unpacked.stderr[-1000:]}")
        partial = folder.with_suffix(f".{os.getpid()}")
        shutil.copytree(Path(place, "unpacked", IN_PACKAGE), partial)
        partial.rename(folder)


def _downloaded(place: str) -> Path | None:
    """None where apt knows of no such package: its lists may have to be fetched first."""
    _run(place, "apt-get", "download", "--quiet", PACKAGE)
    return next(Path(place).glob("*.deb"), None)


def _run(place: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)


if __name__ == "__main__":
    print(prometheus_programs())
