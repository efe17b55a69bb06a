"""Transactions on simulated brokers that fail in all ways keep what they promise (`transaction_story`)."""

import pytest

from harness.soak import size
from simulation.command import simulate
from simulation.mutants import MUTANTS, SOONEST_SEEDS

SEEDS = size(range(2), range(40))
"""In the soak those from which mistakes are looked for are among them. It runs two thousand besides."""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_transactions_keep_their_promises() -> None:
    done = simulate("--workload", "transactions", "--first", str(SEEDS.start), "--seeds", str(len(SEEDS)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(SEEDS)} seeds" in done.stdout


@pytest.mark.soak(only=True)
def test_every_mistake_with_transactions_is_looked_for_from_a_seed_that_passes_without_it() -> None:
    """Else it would not be the mistake that shows."""
    assert {SOONEST_SEEDS[name] for name, each in MUTANTS.items() if each.workload == "transactions"} <= set(SEEDS)
