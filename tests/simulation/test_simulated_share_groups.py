"""Share groups on simulated brokers with all kinds of faults keep their promises, and known mistakes are found."""

import pytest

from harness.soak import size
from simulation.command import simulate
from simulation.mutants import MUTANTS, SOONEST_SEEDS

SEEDS = size(range(1), range(40))
"""The soak also has the seeds from which mistakes are looked for, and runs two thousand others elsewhere."""
MISTAKES = sorted(name for name, each in MUTANTS.items() if each.workload == "shares")
MUTANT_SEEDS = 40


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_share_groups_keep_their_promises() -> None:
    done = simulate("--workload", "shares", "--first", str(SEEDS.start), "--seeds", str(len(SEEDS)))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", size(["answers-before-the-state-is-stored"], MISTAKES))
def test_known_mistakes_of_share_groups_are_found(mutant: str) -> None:
    first = str(SOONEST_SEEDS[mutant])
    done = simulate("--mutant", mutant, "--first", first, "--seeds", str(MUTANT_SEEDS), "--failures-max", "1")
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.soak(only=True)
def test_mistakes_of_share_groups_are_looked_for_from_seeds_that_pass_without_them() -> None:
    assert {SOONEST_SEEDS[name] for name in MISTAKES} <= set(SEEDS)
