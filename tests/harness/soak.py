"""Choose sizes, seeds and bounds: those of `make soak` and `make proof`, or those that each run repeats."""

import os
import random
from typing import Final, TypeVar

Size = TypeVar("Size")
IS_SOAK: Final = os.environ.get("BARNABAS_SOAK") == "true"
SEED_MAX: Final = 10**6


def size(usual: Size, soak: Size) -> Size:
    """Return how much of something a test does: the usual size shows its behaviour, the other one rare faults."""
    return soak if IS_SOAK else usual


def seed(usual: int = 0) -> int:
    """Return the seed of a test, and print it; TEST_SEED=NUMBER replays a seed of the soak."""
    named = os.environ.get("TEST_SEED", "")
    found = int(named) if named else random.randrange(SEED_MAX) if IS_SOAK else usual
    print(f"again: BARNABAS_SOAK={str(IS_SOAK).lower()} TEST_SEED={found}", flush=True)
    return found


def took(what: str, seconds: float, seconds_max: float) -> None:
    """Print how long something took. Only the soak, which has the machine to itself, asserts the bound."""
    print(f"{what}: {seconds:.2f} s (allowed in the soak: {seconds_max:g} s)", flush=True)
    assert not IS_SOAK or seconds <= seconds_max, f"{what} took {seconds:.1f} s; allowed: {seconds_max:g} s"
