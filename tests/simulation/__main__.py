"""`python -m simulation`: runs seeds on all processors; prints impossible observations, and how to replay them.

A seed has the same story only with the same order of hashes, so the process starts itself again with a fixed one.
"""

import argparse
import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from simulation.mutants import MUTANTS, SET_UPS
from simulation.run import Outcome, run, run_migrations, run_with_epochs
from simulation.share_story import run as run_shares
from simulation.transaction_story import run as run_transactions

HASH_SEED: Final = "0"
WORKLOADS: Final = {
    "replication": run,
    "transactions": run_transactions,
    "epochs": run_with_epochs,
    "migrations": run_migrations,
    "shares": run_shares,
}
EVENTS_SHOWN: Final = 40
PROGRESS_S: Final = 10.0


def main() -> int:
    """Return 1 if a seed failed."""
    options = _parse_arguments()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began_s = said_s = time.monotonic()
    failures = acknowledged = done = 0
    mistake = None if options.set_up_only else options.mutant
    for outcome in _outcomes(seeds, options):
        done += 1
        acknowledged += outcome.acknowledged
        if is_failed(outcome, mistake):
            failures += 1
            _tell(outcome, options)
        elif options.story:
            print("\n".join(outcome.events), f"\nuntil {outcome.seconds:.6f} s, {outcome.acknowledged} acknowledged")
        if failures == options.failures_max:
            break
        if done < len(seeds) and time.monotonic() - said_s > PROGRESS_S:
            said_s = time.monotonic()
            print(f"{done} of {len(seeds)} seeds, {failures} failed, {acknowledged} records", flush=True)
    print(f"{done} seeds in {time.monotonic() - began_s:.0f} s: {failures} failed, {acknowledged} records acknowledged")
    return int(failures > 0)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulation", description="Whole clusters on simulated time.")
    parser.add_argument("--seeds", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument(
        "--workload", choices=WORKLOADS, default="replication", help="what clients do; a mutant has its"
    )
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this mistake put in")
    parser.add_argument("--set-up-only", action="store_true", help="with what shows the mistake, and without it")
    parser.add_argument("--failures-max", type=int, default=10, help="stop after so many")
    parser.add_argument("--story", action="store_true", help="what happened, too, where nothing is wrong")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.set_up_only and options.mutant not in SET_UPS:
        parser.error(f"--set-up-only is for these mutants: {', '.join(SET_UPS)}")
    return options


def _outcomes(seeds: "range | list[int]", options: argparse.Namespace) -> Iterator[Outcome]:
    gc.freeze()  # Imported modules stay, so they are not collected after each seed.
    workload = options.workload if options.mutant is None else MUTANTS[options.mutant].workload
    one = partial(run_one, workload=workload, mutant=options.mutant, set_up_only=options.set_up_only)
    workers = options.workers
    if min(workers, len(seeds)) == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(min(workers, len(seeds)), initializer=gc.freeze) as pool:
        yield from pool.map(one, seeds, chunksize=4)


def run_one(seed: int, *, workload: str, mutant: str | None, set_up_only: bool) -> Outcome:
    """Run one seed with a planted mistake, with only the set-up that shows it, or without either."""
    one = WORKLOADS[workload]
    if mutant is None:
        return one(seed)
    with SET_UPS[mutant]() if set_up_only else MUTANTS[mutant].apply():
        return one(seed)


def is_failed(outcome: Outcome, mutant: str | None) -> bool:
    """True if the run shows a violation; with a planted mistake, if it shows that mistake's consequence."""
    if mutant is None:
        return bool(outcome.violations)
    return any(re.search(MUTANTS[mutant].shown_by, each) for each in outcome.violations)


def _tell(outcome: Outcome, options: argparse.Namespace) -> None:
    print(f"seed {outcome.seed}:")
    for violation in outcome.violations:
        print(f"  {violation}")
    for event in outcome.events[-EVENTS_SHOWN:]:
        print(f"    {event}")
    option = "" if options.mutant is None else f" --mutant {options.mutant}{' --set-up-only' * options.set_up_only}"
    option += "" if options.workload == "replication" else f" --workload {options.workload}"
    print(f"  again: make sim SIM='--seed {outcome.seed}{option}'", flush=True)


if __name__ == "__main__":
    sys.exit(main())
