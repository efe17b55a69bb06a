"""Fixtures of tests of the commands, and of rounds."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.console_world import admin, carol, console, console_broker, start_console
from harness.deadline import PATIENCE_S
from harness.group_worker_world import world
from harness.kube_memory import connection
from harness.made_up_kind import made_up
from harness.maintenance_world import runs
from harness.running_up import RunningUp
from harness.worker_world import here

__all__ = [
    "admin",
    "barnabas",
    "carol",
    "connection",
    "console",
    "here",
    "made_up",
    "runs",
    "console_broker",
    "start_console",
    "up",
    "world",
]


@pytest.fixture
def up(tmp_path: Path) -> Iterator[RunningUp]:
    """Return a `barnabas up` that is not started; stop it at the end if it runs."""
    running = RunningUp(tmp_path)
    yield running
    running.close()


@pytest.fixture
def barnabas() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a command to its end."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barnabas", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    return run
