"""SIGTERM to a command that is the first process of its container, and has not come to what it does yet."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.__main__ import EXIT_TERMINATED
from harness.deadline import wait_for
from harness.require import require

IMPORTED = {"broker": "msgspec", "operator": "kopf"}
"""What each command needs, here in a version that never comes to its end."""


def only_child(process: subprocess.Popen[str]) -> int:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(wait_for(lambda: found.read_text().split())[0])


@pytest.mark.parametrize("command", IMPORTED)
def test_a_command_that_is_still_imported_ends_at_once(command: str, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "a namespace of processes needs root")
    slow = tmp_path / f"{IMPORTED[command]}.py"
    slow.write_text("import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    first = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "barnabas", command]
    with subprocess.Popen(first, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            os.kill(only_child(process), signal.SIGTERM)
            assert process.wait(30) == EXIT_TERMINATED
        finally:
            process.kill()
