"""Tests run at once in several processes; a port chosen by one process is not given to another."""

import subprocess
import sys
from pathlib import Path

import pytest

from harness import server_process
from harness.server_process import PORTS, ServerFailed, free_port

OTHER = """
import sys
from harness import server_process
server_process.PORTS = range(int(sys.argv[1]), int(sys.argv[1]) + 1)
print(server_process.free_port())
"""


def other(port: int) -> subprocess.CompletedProcess[str]:
    """Run a process of tests that may choose only this port."""
    command = [sys.executable, "-c", OTHER, str(port)]
    folder = Path(__file__).parents[1]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_port_belongs_to_one_process_of_tests_until_that_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    given = free_port()
    assert "no free port" in other(given).stderr
    monkeypatch.setattr(server_process, "PORTS", range(given, given + 1))
    with pytest.raises(ServerFailed):
        free_port()
    free = next(port for port in reversed(PORTS) if other(port).returncode == 0)
    assert other(free).stdout == f"{free}\n", "the port of an ended process must be free"
