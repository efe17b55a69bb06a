"""A source of Kafka Connect writes each number exactly once."""

import random
import shutil
from pathlib import Path

import pytest

from exactly_once.__main__ import MIN_ISR
from exactly_once.faults import run
from exactly_once.source import Source
from harness.cluster import barnabas_cluster
from harness.require import require
from harness.soak import seed

NUMBERS = 5_000


@pytest.mark.soak(only=True)
def test_a_source_connector_writes_numbers_once_while_brokers_and_the_worker_are_killed(tmp_path: Path) -> None:
    require(shutil.which("javac"), "needs a JDK")
    with barnabas_cluster(tmp_path, 3, MIN_ISR) as cluster:
        assert run(cluster, [Source(cluster, NUMBERS)], random.Random(seed())) == []
