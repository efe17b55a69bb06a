"""F33, F34: some rounds of `make torture`."""

import random
from pathlib import Path

import pytest

from torture.faults import FAULTS
from torture.run import Plan, torture

ROUNDS = 8


@pytest.mark.slow
@pytest.mark.timeout(600)  # A minute on an idle machine.
def test_random_faults_lose_repeat_and_reorder_nothing_and_the_cluster_heals(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"again: make torture TORTURE='--rounds {ROUNDS} --seed {seed}'")
    report = torture(tmp_path, Plan(ROUNDS, seed), print)
    assert report.problems == []
    assert len(report.rounds) == ROUNDS
    assert report.acknowledged > 0
    assert report.partitions_compared > 0


def test_every_kind_of_fault_says_how_long_it_holds() -> None:
    assert all(0 <= low <= high for low, high in (fault.hold_s for fault in FAULTS.values()))
