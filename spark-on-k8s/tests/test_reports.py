"""The jobs `skew` and `retention-audit`, on real topics."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import retention_audit, skew
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.progress import Amount
from barnabas_jobs.planning.skew_report import PartitionLoad, balance, key_text, rate
from barnabas_jobs.spark.status import SparkStatus
from harness.deadline import PATIENCE_S

DAY_MS = 86_400_000


def write(world: World, records: Sequence[tuple[int, bytes | None, int]]) -> None:
    """Write records with these partitions, keys and timestamps; every value has ten bytes."""
    refused: list[object] = []
    producer = Producer(
        {**world.client.settings, "on_delivery": lambda error, _: refused.append(error) if error else None}
    )
    for partition, key, timestamp in records:
        producer.produce(world.topic, b"0123456789", key, partition=partition, timestamp=timestamp)
    assert producer.flush(PATIENCE_S) == 0
    assert not refused


def test_skew_names_hot_partitions_and_keys(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make(4)
    now_ms = int(time.time() * 1000)
    write(world, [(0, b"hot", now_ms + n) for n in range(70)] + [(1, b"cold-%d" % n, now_ms) for n in range(20)])
    write(world, [(2, None, now_ms)] * 8 + [(2, b"\xff\x00", now_ms)] * 2)
    report = tmp_path / "report"
    options = skew.Options(bootstrap=world.bootstrap, topics=[world.topic], report=str(report), top=3)
    result = skew.run(spark, options, lambda: now_ms / 1000 + 35)
    seen = SparkStatus(spark).seen()
    assert (seen.phase, seen.records) == ("reading", Amount(100, 100))
    (topic,) = result.topics
    assert [(each.records, each.bytes, each.keys) for each in topic.partitions] == [
        (70, 910, 1),
        (20, 330, 20),
        (10, 104, 1),
        (0, 0, 0),
    ]
    assert [(each.key, each.records, each.share) for each in topic.hot_keys] == [
        ("hot", 70, 0.7),
        (None, 8, 0.08),
        ("0xff00", 2, 0.02),
    ]
    assert topic.largest_over_mean.records == pytest.approx(2.8)
    assert topic.partitions[0].records_per_s == 2.0
    assert json.loads((report / "skew.json").read_bytes())["records"] == 100
    assert spark.read.parquet(str(report / "partitions.parquet")).count() == 4
    page = (report / "skew.html").read_text(encoding="utf-8")
    assert "http" not in page
    assert page.count("<rect") == 1 + 1 + 4 + 4 + 3
    assert f"for the cluster at {world.bootstrap}" in page
    assert page.count("more than 1.5 times the mean") == 2
    with pytest.raises(JobFailed, match="exists already; name another folder"):
        skew.run(spark, options)


KEPT_LONGER = "and the segment is kept longer by this time"


def test_retention_audit_reports_ages_and_partitions_that_keep_records_too_long(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """In the third partition a record from the day after tomorrow keeps an older one, which is past its retention.

    In the first partition the third record has no timestamp, so it keeps nothing.
    """
    world.make(3, message_timestamp_after_max_ms=str(10 * DAY_MS))
    now_ms = int(time.time() * 1000)
    write(world, [(0, None, now_ms - 2 * DAY_MS), (0, None, now_ms), (1, None, now_ms - 40 * DAY_MS)])
    write(world, [(0, None, -1), (2, None, now_ms - 20 * DAY_MS), (2, None, now_ms + 2 * DAY_MS)])
    options = retention_audit.Options(
        bootstrap=world.bootstrap, topics=[world.topic], report=str(tmp_path / "kept"), retention_ms=DAY_MS
    )
    result = retention_audit.run(spark, options, lambda: now_ms / 1000)
    (topic,) = result.topics
    assert [each.bytes_by_age for each in topic.partitions] == [
        [10, 0, 10, 0, 0, 0, 10],
        [0, 0, 0, 0, 10, 0, 0],
        [10, 0, 0, 10, 0, 0, 0],
    ]
    assert [each.would_go_bytes for each in topic.partitions] == [10, 10, 10]
    told = [each.findings for each in topic.partitions]
    assert told == [[], [], [f"the newest timestamp is 2.0 days in the future, {KEPT_LONGER}"]]
    assert not result.fine
    assert "2.0 days in the future" in (tmp_path / "kept" / "retention.html").read_text(encoding="utf-8")

    world.set_config({"retention.ms": str(30 * DAY_MS), "segment.ms": str(DAY_MS)})
    later = retention_audit.run(
        spark,
        retention_audit.Options(bootstrap=world.bootstrap, topics=[world.topic], report=str(tmp_path / "later")),
        lambda: (now_ms + 20 * DAY_MS) / 1000,
    )
    overdue = [each.findings for each in later.topics[0].partitions if each.partition != 1]
    assert overdue == [
        [],
        [
            (
                "the oldest record is 40.0 days old, but retention.ms (30.0 days), segment.ms (24.0 hours) and ten "
                "minutes for the deletion add up to 31.0 days"
            )
        ],
    ]
    assert later.findings[1] == f"{world.topic}-2: {overdue[1][0]}"
    assert later.summary == f"1 topics were read; {later.findings[0]} (and 1 more)"


def test_keys_are_shown_as_text_or_hexadecimal() -> None:
    assert [key_text(key) for key in (None, b"", b"UA", "Zürich".encode(), b"\xff", b"a\x00")] == [
        None,
        "",
        "UA",
        "Zürich",
        "0xff",
        "0x6100",
    ]


def test_a_topic_without_records_is_balanced() -> None:
    nothing = PartitionLoad(partition=0)
    assert balance([nothing]).bytes == 1.0
    assert rate(1, 5, 5) is None
