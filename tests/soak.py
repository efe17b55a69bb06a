"""`python -m soak`: simulation, torture, actions of users and tests in their long form, with their figures."""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

ACTIONS: Final = 200
TEST_SECONDS_MAX: Final = 3600
TRANSACTIONS_EACH: Final = 5
"""For so many seeds of replication there is one of transactions."""
FIGURES: Final = re.compile(r"acknowledged|\d+ (passed|failed).* in ")
"""The last line of a part that says what it did."""


class Part(NamedTuple):
    """What was run, how it ended, and the last line in which it tells how much was acknowledged."""

    name: str
    code: int
    seconds: float
    figures: str


def main() -> int:
    """1 when a part failed; the others are run all the same."""
    parser = argparse.ArgumentParser(
        prog="python -m soak", description="The simulation, the torture, first weeks and long tests, for hours."
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="of the simulation, on all processors")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--rounds", type=int, default=200, help="of torture")
    parser.add_argument("--torture-seed", type=int, default=random.randrange(10**6), help="what the torture does")
    parser.add_argument("--actions", type=int, default=ACTIONS, help="of users on a Kubernetes with pods")
    parser.add_argument("--weeks-seed", type=int, default=random.randrange(10**6), help="which, and in which order")
    parser.add_argument(
        "--test-seed", type=int, default=random.randrange(10**6), help="of the tests in their long form"
    )
    options = parser.parse_args()
    commit = _commit()
    os.environ |= {"BARNABAS_SOAK": "true", "TEST_SEED": str(options.test_seed)}
    processors = os.cpu_count() or 1
    parts = [
        _run("simulation", f"-m simulation --seeds {options.seeds} --first {options.first} --workers {processors}"),
        _run(
            "transactions",
            f"-m simulation --workload transactions --seeds {options.seeds // TRANSACTIONS_EACH}"
            f" --first {options.first} --workers {processors}",
        ),
        _run("torture", f"-m torture --rounds {options.rounds} --seed {options.torture_seed}"),
        _run("e2e.weeks", f"-m e2e.weeks --actions {options.actions} --seed {options.weeks_seed}"),
        # One after the other, for they assert times. What hypothesis tries is random here.
        _run("tests", f"-m pytest -v --timeout {TEST_SECONDS_MAX} -m soak"),
        _run("hypothesis", f"-m pytest -q -n {processors} --timeout {TEST_SECONDS_MAX} -m hypothesis"),
        _run("pods", f"-m pytest -v --timeout {TEST_SECONDS_MAX} -m soak tests/e2e/pods", {"E2E": "local"}),
    ]
    again = f"--seeds {options.seeds} --first {options.first} --rounds {options.rounds}"
    again += f" --torture-seed {options.torture_seed} --actions {options.actions} --weeks-seed {options.weeks_seed}"
    again += f" --test-seed {options.test_seed}"
    print(f"\ncommit {commit}; again: make soak SOAK='{again}'")
    for part in parts:
        outcome = "passed" if part.code == 0 else f"FAILED (exit code {part.code})"
        print(f"{part.name:12} {outcome} in {part.seconds:.0f} s: {part.figures}")
    if _commit() != commit:
        print(f"FAILED: it is {_commit()} now; the figures are not those of one commit")
    return int(any(part.code for part in parts) or _commit() != commit)


def _run(name: str, arguments: str, environment: Mapping[str, str] | None = None) -> Part:
    """What it prints is shown as it comes."""
    began_s, figures = time.monotonic(), ""
    command = [sys.executable, *arguments.split()]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stdout is not None, "it was started with a pipe"
        for line in process.stdout:
            print(line, end="", flush=True)
            figures = line.strip() if FIGURES.search(line) else figures
        code = process.wait()
    return Part(name, code, time.monotonic() - began_s, figures)


def _commit() -> str:
    found = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
