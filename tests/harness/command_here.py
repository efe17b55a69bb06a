"""Runs a subcommand of `barnabas` in this process: to import it in another takes a second and a half of CPU."""

import importlib
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from barnabas.__main__ import COMMANDS


def barnabas_here(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a subcommand to its end, and return its exit code and output."""
    main = importlib.import_module(COMMANDS[name].module).main
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as errors:
        try:
            code = int(main(arguments))
        except SystemExit as ended:  # argparse refuses an option.
            code = int(ended.code or 0)
    return subprocess.CompletedProcess([name, *arguments], code, out.getvalue(), errors.getvalue())
