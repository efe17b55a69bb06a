"""The flights of 2013: archived, topic deleted, restored by the command line, killed on the way, and once more."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from flights import FLIGHTS, flights
from jobs_world import FIRST_MS, JARS, WAIT_S, World
from pyspark.sql import SparkSession

from harness.deadline import wait_for
from harness.soak import IS_SOAK, size

PARTITIONS = 6
RECORDS = size(100_000, FLIGHTS)
JOB_SECONDS_MAX = 600


def publish(world: World) -> None:
    """Each second one, from the first of 2013 on; each tenth with a header."""
    refused: list[Any] = []
    producer = Producer({**world.client.settings, "linger.ms": 20, "compression.type": "lz4"})
    for number, (carrier, flight) in enumerate(islice(flights(), RECORDS)):
        headers = [("number", b"%d" % number)] if number % 10 == 0 else None
        while True:
            try:
                producer.produce(
                    world.topic,
                    flight,
                    carrier,
                    timestamp=FIRST_MS + number * 1_000,
                    headers=headers,  # type: ignore[arg-type]  # Its stub knows no header without a value.
                    on_delivery=lambda error, _: refused.append(error) if error else None,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(WAIT_S) == 0
    assert not refused


def digest(world: World) -> tuple[int, str]:
    """Of each byte of all records with their places: how many records, and SHA-256 by partition in order."""
    consumer = Consumer({**world.client.settings, "group.id": "nobody", "enable.auto.commit": False})
    sums = [hashlib.sha256() for _ in range(PARTITIONS)]
    try:
        places = [TopicPartition(world.topic, partition, 0) for partition in range(PARTITIONS)]
        wanted = sum(consumer.get_watermark_offsets(place, WAIT_S)[1] for place in places)
        consumer.assign(places)
        seen = 0
        while seen < wanted:
            messages = consumer.consume(10_000, WAIT_S)
            assert messages, f"{seen} of {wanted} records"
            for message in messages:
                assert message.error() is None
                what = (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
                sums[message.partition() or 0].update(repr(what).encode())
            seen += len(messages)
        return seen, "".join(each.hexdigest() for each in sums)
    finally:
        consumer.close()


def command(world: World, job: str, **options: object) -> list[str]:
    """`barnabas jobs run` with local[2]."""
    chosen = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": world.folder, **options}
    words = [word for name, value in chosen.items() for word in ("--option", f"{name}={value}")]
    own = ["--master", "local[2]", "--jars", str(JARS), "--conf", "spark.sql.shuffle.partitions=2"]
    return [sys.executable, "-m", "barnabas", "jobs", "run", job, *own, *words]


def restore(world: World) -> Any:
    """Its result."""
    done = subprocess.run(
        command(world, "restore"), capture_output=True, text=True, check=False, timeout=JOB_SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@contextmanager
def killed_when(command: list[str], log: Path, due: Callable[[], object]) -> Iterator[None]:
    """The command with its JVM, killed as soon as that is so. In the soak it must not have ended by then."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        wait_for(due, seconds_max=JOB_SECONDS_MAX, pause_s=0.01)
        assert not IS_SOAK or process.poll() is None, log.read_text(encoding="utf-8")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    yield


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)
def test_flights_are_archived_deleted_restored_and_equal_byte_by_byte(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(PARTITIONS)
    publish(world)
    before = digest(world)
    assert before[0] == RECORDS
    assert world.archive(spark, commit_records=RECORDS // 3).archived_records == RECORDS

    world.delete()
    with killed_when(
        command(world, "restore", create="true"), tmp_path / "restore.log", lambda: written(world) > RECORDS // 10
    ):
        assert not IS_SOAK or written(world) < RECORDS, "it was killed too late"
    restored = restore(world)
    assert sum(restored["already_there"].values()) > RECORDS // 10
    assert sum(restored["written"].values()) + sum(restored["already_there"].values()) == RECORDS
    assert digest(world) == before
    assert world.verify(spark, against=world.topic).fine


def written(world: World) -> int:
    """Records in the topic; 0 while there is none."""
    if world.topic not in world.client.admin.list_topics(timeout=WAIT_S).topics:
        return 0
    return sum(world.client.ends(world.topic, partition)[1] for partition in range(PARTITIONS))
