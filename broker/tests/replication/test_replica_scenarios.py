"""Scenarios of one replica of flights-0 on broker 1, as documents (`harness.scenarios`)."""

from pathlib import Path

import pytest
from scenario_replica import Replica

from harness.scenarios import check_scenario

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_replica_does_what_the_document_says(path: Path, tmp_path: Path) -> None:
    check_scenario(path, Replica(tmp_path))
