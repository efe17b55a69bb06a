"""Our server-side assignors beside those of Apache Kafka 4.4: recorded groups, and random ones in the soak."""

import json
import random
import shutil
import time

import pytest

from assignors.groups import ANSWERS, by_apache_kafka, by_us, random_group, without_idle
from harness.require import require
from harness.soak import seed, size


def test_assignments_of_recorded_groups_are_those_of_apache_kafka() -> None:
    for group, answer in json.loads(ANSWERS.read_text(encoding="utf-8")):
        assert without_idle(by_us(group), group) == without_idle(answer, group), group


@pytest.mark.soak(only=True)
def test_assignments_of_random_groups_are_those_of_apache_kafka() -> None:
    require(shutil.which("javac"), "needs a JDK")
    chance = random.Random(seed())
    groups = [random_group(chance) for _ in range(size(100, 10_000))]
    answers = list(by_apache_kafka(groups))
    began = time.monotonic()
    for group, answer in zip(groups, answers, strict=True):
        assert without_idle(by_us(group), group) == without_idle(answer, group), group
    print(f"{len(groups)} groups assigned as by Apache Kafka, in {time.monotonic() - began:.1f} s of ours")
