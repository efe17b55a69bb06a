"""The command `barnabas` without a subcommand, or with one that is not installed."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import barnabas
from barnabas.__main__ import COMMANDS, EXIT_USAGE
from harness.deadline import PATIENCE_S


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_the_version_option_prints_one_line() -> None:
    ended = run("--version")
    assert (ended.returncode, ended.stdout) == (0, f"barnabas {importlib.metadata.version('barnabas')}\n")


def test_the_command_without_arguments_lists_the_subcommands() -> None:
    ended = run()
    assert ended.returncode == EXIT_USAGE
    assert re.findall(r"^  ([\w-]+) ", ended.stderr, re.MULTILINE) == list(COMMANDS)


def test_a_subcommand_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    """The broker's image is such a case: it has no sources of the operator."""
    shutil.copytree(Path(barnabas.__file__).parent, tmp_path / "barnabas")
    # -S: without the packages of the virtual environment.
    command = [sys.executable, "-S", "-m", "barnabas", "accept-loss", "--all"]
    ended = subprocess.run(
        command, cwd=tmp_path, env={}, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.returncode == EXIT_USAGE
    assert ended.stderr == (
        "barnabas accept-loss: No module named 'barnabas_operator'; `pip install 'barnabas[operator]'`"
        " installs the packages that the command needs; the operator's image contains them\n"
    )


SUBCOMMAND = """
import gc
WAS_ENABLED = gc.isenabled()
def main(arguments):
    print(WAS_ENABLED, gc.isenabled())
    return 0
"""
AS_THE_BROKER = """
from barnabas import __main__ as command
command.COMMANDS["broker"] = command.Command("subcommand", "", "")
command.main()
"""


def test_no_garbage_is_collected_while_a_subcommand_is_imported(tmp_path: Path) -> None:
    (tmp_path / "subcommand.py").write_text(SUBCOMMAND)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, "-c", AS_THE_BROKER, "broker"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert ended.stdout == "False True\n"
