"""`python -m simulation`: seed after seed, on all processors; prints what no correct cluster shows, and how to replay.

The same seed tells the same story only with the same order of hashes, so the process starts itself anew with one.
"""

import argparse
import gc
import os
import re
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from typing import Final

from simulation.mutants import MUTANTS
from simulation.run import Outcome, run

HASH_SEED: Final = "0"
EVENTS_SHOWN: Final = 40
PROGRESS_S: Final = 10.0


def main() -> int:
    """1 when a seed failed."""
    options = _parse_arguments()
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]])
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    began_s = said_s = time.monotonic()
    failures = acknowledged = done = 0
    for outcome in _outcomes(seeds, options.mutant, options.workers):
        done += 1
        acknowledged += outcome.acknowledged
        if is_failed(outcome, options.mutant):
            failures += 1
            _tell(outcome, options.mutant)
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
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this mistake put in")
    parser.add_argument("--failures-max", type=int, default=10, help="stop after so many")
    parser.add_argument("--story", action="store_true", help="what happened, too, where nothing is wrong")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


def _outcomes(seeds: "range | list[int]", mutant: str | None, workers: int) -> Iterator[Outcome]:
    gc.freeze()  # What is imported stays, and is not looked through after each seed.
    if min(workers, len(seeds)) == 1:
        yield from (run_one(seed, mutant) for seed in seeds)
        return
    with ProcessPoolExecutor(min(workers, len(seeds)), initializer=gc.freeze) as pool:
        yield from pool.map(run_one, seeds, [mutant] * len(seeds), chunksize=4)


def run_one(seed: int, mutant: str | None = None) -> Outcome:
    """One seed, with a mistake put in or without."""
    with MUTANTS[mutant].apply() if mutant is not None else nullcontext():
        return run(seed)


def is_failed(outcome: Outcome, mutant: str | None) -> bool:
    """Whether it shows what it should not, or the mistake that was put in, and that by what the mistake leads to."""
    if mutant is None:
        return bool(outcome.violations)
    return any(re.search(MUTANTS[mutant].shown_by, each) for each in outcome.violations)


def _tell(outcome: Outcome, mutant: str | None) -> None:
    print(f"seed {outcome.seed}:")
    for violation in outcome.violations:
        print(f"  {violation}")
    for event in outcome.events[-EVENTS_SHOWN:]:
        print(f"    {event}")
    option = f" --mutant {mutant}" if mutant is not None else ""
    print(f"  again: make sim SIM='--seed {outcome.seed}{option}'", flush=True)


if __name__ == "__main__":
    sys.exit(main())
