"""Tests that share something expensive run in one worker: pytest and pytest-xdist must agree on groups."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

@pytest.mark.xdist_group("dear")
@pytest.mark.parametrize("number", range(8))
def test_that_shares(number, worker_id):
    print(f"ran by {worker_id}")
"""


def test_all_tests_of_a_group_run_in_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_sharing.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-rP", "-p", "xdist", "."]
    no_other_plugins = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=tmp_path, env=no_other_plugins, capture_output=True, text=True, check=True)
    by_worker = [ran.stdout.count(f"ran by {worker}") for worker in ("gw0", "gw1")]
    assert sorted(by_worker) == [0, 8], ran.stdout
