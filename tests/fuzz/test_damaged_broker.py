"""A broker with damaged files and records starts, and serves everything else."""

import os
from pathlib import Path

import pytest

from fuzz.damaged_broker import DamagedBroker

SEED = int(os.environ.get("FUZZ_SEED", "20261126"))


@pytest.mark.slow
def test_a_broker_on_damaged_files_and_records_starts_and_serves_the_rest(tmp_path: Path) -> None:
    broker = DamagedBroker(tmp_path)
    broker.prepare()
    changed = [what for number in (0, 1) for what in broker.play(SEED, number)]
    assert len(changed) > 13, changed
