"""Kafka Streams counts each word exactly once."""

import random
import shutil
from pathlib import Path

import pytest

from exactly_once.__main__ import MIN_ISR
from exactly_once.faults import run
from exactly_once.words import Words
from harness.cluster import barnabas_cluster
from harness.require import require
from harness.soak import seed

LINES = 2_000


@pytest.mark.soak(only=True)
def test_kafka_streams_counts_words_once_while_brokers_and_the_program_are_killed(tmp_path: Path) -> None:
    require(shutil.which("javac"), "needs a JDK")
    chance = random.Random(seed())
    with barnabas_cluster(tmp_path, 3, MIN_ISR) as cluster:
        assert run(cluster, [Words(cluster, LINES, chance)], chance) == []
