"""Tortures three brokers with random faults, and prints what it did, what it found, and how to replay it."""

import argparse
import random
import shlex
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from torture.faults import FAULTS
from torture.run import SQLITE, STORES, Plan, Report, torture


def main() -> int:
    """Return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m torture", description="Three brokers under random faults.")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first round, to begin where one failed")
    parser.add_argument("--rate", type=int, default=200, help="records a second of each of the three writers")
    parser.add_argument("--only", action="append", default=[], choices=list(FAULTS), help="may be given several times")
    parser.add_argument("--store", choices=STORES, default=SQLITE, help="where metadata is; kubernetes: an API server")
    parser.add_argument("--tls", action="store_true", help="between brokers, with certificates of both sides")
    options = parser.parse_args()
    only = tuple(options.only)
    plan = Plan(options.rounds, options.seed, options.rate, options.first, only, options.store, options.tls)
    again = f"make torture TORTURE={shlex.quote(_as_arguments(plan))}"
    print(f"seed {plan.seed}; again: {again}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    began_s = time.monotonic()
    failed = True
    try:
        report = torture(folder, plan, lambda text: print(f"{time.monotonic() - began_s:6.0f} s  {text}", flush=True))
        failed = bool(report.problems)
        _print(report, time.monotonic() - began_s)
    finally:
        if failed:
            print(f"FAILED; the brokers' files are in {folder}; again: {again}", file=sys.stderr)
        else:
            shutil.rmtree(folder)
    return int(failed)


def _as_arguments(plan: Plan) -> str:
    """Return the arguments of this plan, with names of faults in double quotes: they stand inside single ones."""
    numbers = f"--rounds {plan.rounds} --seed {plan.seed} --first {plan.first} --rate {plan.rate} --store {plan.store}"
    return " ".join([numbers, *(["--tls"] if plan.tls else []), *(f'--only "{name}"' for name in plan.only)])


def _print(report: Report, seconds: float) -> None:
    heals: dict[str, list[float]] = defaultdict(list)
    for each in report.rounds:
        for fault in each.faults:
            heals[fault].append(each.heal_s)
    print(f"\n{'fault':50} {'times':>5} {'healed: median':>15} {'longest':>9}")
    for fault in filter(heals.get, FAULTS):
        times = heals[fault]
        print(f"{fault:50} {len(times):5} {median(times):13.1f} s {max(times):7.1f} s")
    print(
        f"{len(report.rounds)} rounds in {seconds:.0f} s; {report.acknowledged} records acknowledged, "
        f"{report.seen} seen by the group, {report.commits} commits kept, {report.partitions_compared} partitions "
        f"compared on all replicas; longest time without an acknowledgement {report.longest_gap_s:.1f} s"
    )
    for line in report.skipped:
        print(line)
    for problem in report.problems:
        print(f"\nPROBLEM: {problem}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
