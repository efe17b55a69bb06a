"""Plays a new user's first weeks on a real Kubernetes: `python -m e2e.weeks` prints how to replay them. Needs root."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from e2e.pods.figures import Figures
from e2e.pods.providers import local
from e2e.weeks.deck import ACTIONS, Plan
from e2e.weeks.run import first_weeks
from local_kubernetes.binaries import CannotStart


def main() -> int:
    """Return 1 if a promise was broken, or if nothing could be started."""
    parser = argparse.ArgumentParser(prog="python -m e2e.weeks", description="What users do in their first weeks.")
    parser.add_argument("--actions", type=int, default=2 * len(ACTIONS), help="how many")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="their order, and where they happen")
    parser.add_argument("--only", action="append", default=[], choices=list(ACTIONS), help="may be given several times")
    parser.add_argument("--short", action="store_true", help="without those that take minutes")
    options = parser.parse_args()
    plan = Plan(options.actions, options.seed, tuple(options.only), not options.short)
    print(f"seed {plan.seed}; again: {plan.again}", flush=True)
    try:
        return _run(plan)
    except CannotStart as reason:
        print(f"cannot: {reason}", file=sys.stderr)
        return 1


def _run(plan: Plan) -> int:
    began_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began_s:6.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="weeks-") as name, local(Path(name) / "cluster") as cluster:
        report = first_weeks(cluster, Path(name), plan, say)
    figures = Figures()
    report.tell(figures)
    figures.write(by=plan.again)
    for problem in report.problems:
        print(f"PROBLEM: {problem}", file=sys.stderr)
    print(f"FAILED; again: {plan.again}" if report.problems else "passed")
    return int(bool(report.problems))


if __name__ == "__main__":
    sys.exit(main())
