"""F30-F49: whole clusters keep their promises in simulated time, and known mistakes are found."""

import re
from itertools import chain

import pytest

from harness.soak import IS_SOAK, size
from simulation.__main__ import is_failed
from simulation.command import simulate
from simulation.mutants import MUTANTS, SET_UPS, SOONEST_SEEDS
from simulation.run import Outcome

REPLICATION = sorted(name for name, each in MUTANTS.items() if each.workload == "replication")
SEEDS = size((range(1),), (range(12), range(12, 24), range(24, 36), range(73, 74), range(116, 117)))
"""The soak also has the seeds from which mistakes are looked for, and runs ten thousand others elsewhere."""

MUTANTS_TRIED = size(
    [
        "acknowledges-before-the-high-watermark",
        "drops-the-lowest-segment-first",
        "truncates-to-the-high-watermark",
        "reads-past-open-transactions",
    ],
    sorted(MUTANTS),
)
"""A mistake each of replication, storage, truncation and transactions shows that the simulation can fail."""

MUTANT_SEEDS = 150
"""Every mistake shows within this many seeds; one that shows it is enough, and mostly it is the first."""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_clusters_keep_their_promises(seeds: range) -> None:
    done = simulate("--first", str(seeds.start), "--seeds", str(len(seeds)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(seeds)} seeds" in done.stdout


def test_a_seed_gives_the_same_story_each_time() -> None:
    first, second = (simulate("--seed", "3", "--story") for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert len(first.stdout) > 200
    assert first.stdout.split("seeds in")[0] == second.stdout.split("seeds in")[0]


@pytest.mark.soak(only=True)
def test_mistakes_are_looked_for_from_seeds_that_pass_without_them() -> None:
    """If a seed failed without the mistake, its failure would not show that the mistake was found."""
    assert set(SOONEST_SEEDS) == set(MUTANTS)
    assert {SOONEST_SEEDS[name] for name in REPLICATION} <= set(chain(*SEEDS))  # These seeds must pass.


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS_TRIED)
def test_a_known_mistake_is_found(mutant: str) -> None:
    done = simulate(
        *("--mutant", mutant, "--failures-max", "1"),
        *("--first", str(SOONEST_SEEDS[mutant]), "--seeds", str(MUTANT_SEEDS)),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    shown = re.search(rf"--seed (\d+) --mutant {mutant}'", done.stdout)
    assert shown is not None, done.stdout
    if mutant in SET_UPS and IS_SOAK:
        without = simulate("--mutant", mutant, "--set-up-only", "--story", "--seed", shown[1])
        assert without.returncode == 0, without.stdout + without.stderr
        assert " set up: " in without.stdout


@pytest.mark.soak(only=True)
def test_a_run_without_producers_fails_for_each_seed() -> None:
    """A run without records could not find any mistake, so it must not pass."""
    done = simulate("--mutant", "nobody-produces", "--seeds", "3")
    assert "3 seeds in" in done.stdout
    assert "3 failed" in done.stdout


@pytest.mark.parametrize(("violations", "is_found"), [([], False), (["KeyError: 'x'"], False), (["lost: y"], True)])
def test_a_crash_does_not_count_as_a_mistake_that_was_found(violations: list[str], is_found: bool) -> None:
    outcome = Outcome(1, violations, [], 100, 1.0)
    assert is_failed(outcome, "acknowledges-before-the-high-watermark") is is_found
    assert is_failed(outcome, None) is bool(violations)
