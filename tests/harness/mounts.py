"""Small file systems for single tests: a disk that can be full or read-only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.require import require


def _mount(*arguments: str) -> str | None:
    """Mount; return None, or the reason why the machine does not allow it."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting needs root"
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"mount {' '.join(arguments)}: {done.stderr.strip()}"


@contextmanager
def small_disk(path: Path, size_mib: int, *options: str) -> Iterator[Path]:
    """Mount a tmpfs at `path`. Skips the test if the machine does not allow it; with CI=true that is a failure."""
    path.mkdir(parents=True, exist_ok=True)
    problem = _mount("-t", "tmpfs", "-o", ",".join((f"size={size_mib}m", *options)), "tmpfs", str(path))
    require(problem is None, problem)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


def remount(path: Path, option: str) -> None:
    """Mount it again with the option `ro` or `rw`."""
    problem = _mount("-o", f"remount,{option}", str(path))
    assert problem is None, problem


def fill(path: Path) -> Path:
    """Write a file into `path` that takes all space that is left; return it."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\1" * size)
            except OSError:
                continue
    return ballast
