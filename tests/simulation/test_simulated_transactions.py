"""Transactions on simulated brokers with all kinds of faults keep their promises (`transaction_story`)."""

import pytest

from harness.soak import size
from simulation.command import simulate
from simulation.mutants import MUTANTS, SOONEST_SEEDS

SEEDS = size(range(1), range(40))
"""The soak also has the seeds from which mistakes are looked for, and runs two thousand others elsewhere."""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_transactions_keep_their_promises() -> None:
    done = simulate("--workload", "transactions", "--first", str(SEEDS.start), "--seeds", str(len(SEEDS)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SEEDS)} seeds" in done.stdout


@pytest.mark.soak(only=True)
def test_mistakes_with_transactions_are_looked_for_from_seeds_that_pass_without_them() -> None:
    """If a seed failed without the mistake, its failure would not show that the mistake was found."""
    assert {SOONEST_SEEDS[name] for name, each in MUTANTS.items() if each.workload == "transactions"} <= set(SEEDS)
