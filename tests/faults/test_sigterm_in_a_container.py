"""SIGTERM to a command that is the first process of its container and is still importing modules."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.__main__ import EXIT_TERMINATED
from harness.deadline import PATIENCE_S, wait_for
from harness.require import require

IMPORTED = {"broker": "msgspec", "operator": "kopf", "jobs": "pyspark"}
"""A module that each command imports, here in a version whose import never ends."""


def only_child(process: subprocess.Popen[str]) -> int:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(wait_for(lambda: found.read_text().split())[0])


@pytest.mark.parametrize("command", IMPORTED)
def test_sigterm_during_imports_ends_the_command_at_once_with_a_message(command: str, tmp_path: Path) -> None:
    require(os.geteuid() == 0, "a namespace of processes needs root")
    slow = tmp_path / f"{IMPORTED[command]}.py"
    slow.write_text("import threading\nprint('importing', flush=True)\nthreading.Event().wait()\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    first = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "barnabas", command]
    environment = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen(first, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "importing\n"
            os.kill(only_child(process), signal.SIGTERM)
            said = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == EXIT_TERMINATED
            assert said == ("", f"barnabas {command}: stopped by SIGTERM\n")
        finally:
            process.kill()
