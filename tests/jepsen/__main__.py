"""`make proof-jepsen`: appends to lists and reads them in transactions under faults, and searches for anomalies."""

import argparse
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from jepsen.anomalies import LEGAL, Kind
from jepsen.libraries import LIBRARIES
from jepsen.run import BARNABAS, KAFKA, Plan, Report, run
from torture.faults import FAULTS

SHOWN_MAX = 5


def main() -> int:
    """Run the plan; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="make proof-jepsen", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="of faults")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of faults and transactions")
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to begin where one failed")
    parser.add_argument("--peer", choices=(BARNABAS, KAFKA), default=BARNABAS, help="whose brokers these are")
    parser.add_argument("--only", action="append", default=[], choices=list(FAULTS), help="may be given several times")
    parser.add_argument("--library", action="append", default=[], choices=list(LIBRARIES), help="each one is a client")
    options = parser.parse_args()
    libraries = tuple(options.library or LIBRARIES)
    plan = Plan(
        options.rounds, options.seed, options.peer, options.first, libraries=libraries, only=tuple(options.only)
    )
    print(f"again: make proof-jepsen PROOF={shlex.quote(_as_arguments(plan))}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="jepsen-"))
    began_s = time.monotonic()
    report = run(folder, plan, lambda text: print(f"{time.monotonic() - began_s:6.0f} s  {text}", flush=True))
    _print(report, plan, time.monotonic() - began_s)
    if report.forbidden or report.problems:
        print(f"FAILED; the brokers' output is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _as_arguments(plan: Plan) -> str:
    """Return the arguments of this plan."""
    numbers = f"--rounds {plan.rounds} --seed {plan.seed} --first {plan.first} --peer {plan.peer}"
    libraries = [f"--library {name}" for name in plan.libraries]
    return " ".join([numbers, *libraries, *(f'--only "{name}"' for name in plan.only)])


def _print(report: Report, plan: Plan, seconds: float) -> None:
    print(f"\n{'fault':50} times")
    for fault, times in report.rounds.most_common():
        print(f"{fault:50} {times:5}")
    counts = Counter(anomaly.kind for anomaly in report.anomalies)
    print("\nanomalies")
    for kind in Kind:
        print(f"{kind:50} {counts[kind]:5}  {'legal' if kind in LEGAL else 'forbidden'}")
    outcomes = ", ".join(f"{number} {outcome.value}" for outcome, number in report.outcomes.most_common())
    fates = ", ".join(f"{number} {fate.name.lower()}" for fate, number in report.fates.most_common())
    print(f"\n{plan.peer} with transaction.version {report.transaction_version}, seed {plan.seed}")
    print(f"{report.rounds.total()} faults in {seconds:.0f} s")
    print(f"transactions: {outcomes} ({fates}); {report.values} values in the lists, {report.reads} reads")
    if report.skipped:
        print(report.skipped)
    shown = [str(anomaly) for anomaly in report.forbidden] + report.problems
    for line in shown[:SHOWN_MAX]:
        print(f"PROBLEM: {line}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
