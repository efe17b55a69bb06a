"""Kafka Streams counts each word exactly once."""

import random
import shutil
from pathlib import Path

import pytest

from exactly_once import words
from exactly_once.__main__ import MIN_ISR
from harness.cluster import barnabas_cluster
from harness.require import require
from harness.soak import seed

LINES = 2_000


@pytest.mark.soak(only=True)
def test_kafka_streams_counts_words_once_while_brokers_and_the_program_are_killed(tmp_path: Path) -> None:
    require(shutil.which("javac"), "needs a JDK")
    with barnabas_cluster(tmp_path, 3, MIN_ISR) as cluster:
        assert words.run(cluster, LINES, random.Random(seed())) == []
