"""Runs `python -m simulation` in a process of its own with a fixed order of hashes, so that a seed has one story."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m simulation` in one process."""
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "simulation", "--workers", "1", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
