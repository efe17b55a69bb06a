"""Groups of the consumer protocol (KIP-848) keep their promises in simulated time, and known mistakes are found."""

import pytest

from harness.soak import size
from simulation.command import simulate
from simulation.mutants import MUTANTS, SOONEST_SEEDS

SEEDS = size(range(1), range(40))
MISTAKES = sorted(name for name, each in MUTANTS.items() if each.workload in ("epochs", "migrations"))
MUTANT_SEEDS = 150


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workload", size(["migrations"], ["epochs", "migrations"]))
def test_groups_keep_their_promises(workload: str) -> None:
    done = simulate("--workload", workload, "--first", str(SEEDS.start), "--seeds", str(len(SEEDS)))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", size(["takes-commits-of-earlier-epochs"], MISTAKES))
def test_known_mistakes_are_found(mutant: str) -> None:
    first = str(SOONEST_SEEDS[mutant])
    done = simulate("--mutant", mutant, "--first", first, "--seeds", str(MUTANT_SEEDS), "--failures-max", "1")
    assert done.returncode == 1, done.stdout + done.stderr
