"""`python -m soak`: simulation, torture and actions of users with random seeds, and their figures."""

import argparse
import os
import random
import re
import subprocess
import sys
import time
from typing import Final, NamedTuple

ACTIONS: Final = 200
OTHERS_EACH: Final = 5
"""The number of seeds of replication for each seed of transactions, and of share groups."""
FIGURES: Final = re.compile(r"acknowledged|\d+ (passed|failed).* in ")
"""The pattern of the last line with figures of a part."""


class Part(NamedTuple):
    """The command, its outcome, and its last line with the number of acknowledged records."""

    name: str
    code: int
    seconds: float
    figures: str


def main() -> int:
    """Run all parts, even if one fails; return 1 then."""
    parser = argparse.ArgumentParser(
        prog="python -m soak", description="The simulation, the torture and first weeks, for hours."
    )
    parser.add_argument("--seeds", type=int, default=10_000, help="of the simulation, on all processors")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--rounds", type=int, default=200, help="of torture")
    parser.add_argument("--torture-seed", type=int, default=random.randrange(10**6), help="what the torture does")
    parser.add_argument("--actions", type=int, default=ACTIONS, help="of users on a Kubernetes with pods")
    parser.add_argument("--weeks-seed", type=int, default=random.randrange(10**6), help="which, and in which order")
    options = parser.parse_args()
    commit = _commit()
    os.environ["BARNABAS_SOAK"] = "true"
    processors = os.cpu_count() or 1
    parts = [
        _run("simulation", f"-m simulation --seeds {options.seeds} --first {options.first} --workers {processors}"),
        *(
            _run(
                workload,
                f"-m simulation --workload {workload} --seeds {options.seeds // OTHERS_EACH}"
                f" --first {options.first} --workers {processors}",
            )
            for workload in ("transactions", "shares")
        ),
        _run("torture", f"-m torture --rounds {options.rounds} --seed {options.torture_seed}"),
        _run("e2e.weeks", f"-m e2e.weeks --actions {options.actions} --seed {options.weeks_seed}"),
    ]
    again = f"--seeds {options.seeds} --first {options.first} --rounds {options.rounds}"
    again += f" --torture-seed {options.torture_seed} --actions {options.actions} --weeks-seed {options.weeks_seed}"
    print(f"\ncommit {commit}; again: make soak SOAK='{again}'")
    for part in parts:
        outcome = "passed" if part.code == 0 else f"FAILED (exit code {part.code})"
        print(f"{part.name:12} {outcome} in {part.seconds:.0f} s: {part.figures}")
    if _commit() != commit:
        print(f"FAILED: it is {_commit()} now; the figures are not those of one commit")
    return int(any(part.code for part in parts) or _commit() != commit)


def _run(name: str, arguments: str) -> Part:
    """Run a module of the tests, and show its output as it comes."""
    began_s, figures = time.monotonic(), ""
    command = [sys.executable, *arguments.split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "the process must have a pipe"
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
