"""A reader in a separate network, where the ports of the pages are free; needs root."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from harness.require import require

SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options that suit a JVM that runs one job."""


def read_alone(folder: Path, *pages: Path, programs: Path = Path(sys.executable).parent) -> str:
    """Return what a reader of these pages sees who works in this folder. Raises AssertionError if a page fails."""
    require(os.geteuid() == 0 and shutil.which("unshare"), "root, for a network of its own")
    require(shutil.which("kcat"), "kcat: apt-get install kcat")
    settings = {
        **os.environ,
        "JDK_JAVA_OPTIONS": SHORT_LIVED,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"])),
    }
    inside = f"ip link set lo up && exec {sys.executable} -m documents {shlex.join(map(str, pages))}"
    command = ["unshare", "--net", "bash", "-c", inside]
    done = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
