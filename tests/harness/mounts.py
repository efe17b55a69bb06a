"""Small file systems of a test's own: a disk that can be full, or read-only."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.require import require


def _mount(*arguments: str) -> str | None:
    """None, or why it cannot be done."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return "mounting needs root"
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"mount {' '.join(arguments)}: {done.stderr.strip()}"


@contextmanager
def small_disk(path: Path, size_mib: int, *options: str) -> Iterator[Path]:
    """An own tmpfs at `path`. Skips the test where the machine does not allow it; where CI=true that is a failure."""
    path.mkdir(parents=True, exist_ok=True)
    problem = _mount("-t", "tmpfs", "-o", ",".join((f"size={size_mib}m", *options)), "tmpfs", str(path))
    require(problem is None, problem)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=False)


def remount(path: Path, option: str) -> None:
    """`ro` or `rw`."""
    problem = _mount("-o", f"remount,{option}", str(path))
    assert problem is None, problem


def fill(path: Path) -> Path:
    """A file in `path` that takes all space that is left."""
    ballast = path / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(b"\1" * size)
            except OSError:
                continue
    return ballast
