"""`barnabas` without a subcommand."""

import importlib.metadata
import re
import subprocess
import sys

from barnabas.__main__ import COMMANDS, EXIT_USAGE


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_version_is_one_line() -> None:
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"barnabas {importlib.metadata.version('barnabas')}\n")


def test_without_arguments_the_commands_are_told() -> None:
    ended = run()
    assert ended.returncode == EXIT_USAGE
    assert re.findall(r"^  ([\w-]+) ", ended.stderr, re.MULTILINE) == list(COMMANDS)
