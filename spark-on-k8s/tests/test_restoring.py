"""The job `restore`, into a real broker."""

import errno
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from jobs_world import FIRST_MS, HOUR_MS, QUIET_S, World
from pyspark import SparkContext
from pyspark.sql import SparkSession

from barnabas_jobs.files.sorted_records import RestoreNotes
from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.jobs import restore
from barnabas_jobs.kafka.writer import Record, TopicWriter
from barnabas_jobs.planning.errors import JobFailed, Refused
from harness.deadline import PATIENCE_S, wait_for


def restored(spark: SparkSession, world: World, **options: Any) -> restore.Result:
    return restore.run(spark, msgspec.convert({**world.options(), **options}, restore.Options), quiet_s=QUIET_S)


def test_a_deleted_topic_is_restored_with_its_records_and_config(spark: SparkSession, world: World) -> None:
    world.make(max_message_bytes="2000000")
    world.write(60)
    before = world.read()
    world.archive(spark)
    world.delete()
    planned = restored(spark, world, create=True, dry_run=True)
    assert [(each.records, each.first_offset, each.last_offset) for each in planned.selected] == [(20, 0, 19)] * 3
    assert world.topic not in world.client.admin.list_topics(timeout=PATIENCE_S).topics
    assert restored(spark, world, create=True).written == {0: 20, 1: 20, 2: 20}
    assert world.read() == before
    assert world.own_config()["max.message.bytes"] == "2000000"
    again = restored(spark, world)
    assert (again.written, again.already_there) == (dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 20))
    assert world.read() == before


def test_ranges_of_time_offsets_and_partitions_are_appended_to_a_topic(spark: SparkSession, world: World) -> None:
    into = f"{world.topic}-into"
    world.make()
    world.make(topic=into)
    world.write(60)
    world.write_values(into, [b"here before"])
    world.archive(spark)
    moment = datetime.fromtimestamp((FIRST_MS + 30 * HOUR_MS) / 1000, UTC)
    with pytest.raises(
        JobFailed, match=r"is not a new topic: 1 offsets .* Restore into a new topic, or set append=true"
    ):
        restored(spark, world, into=into, from_time=moment)
    restored(spark, world, into=into, append=True, name="by-time", from_time=moment)
    restored(spark, world, into=into, append=True, name="by-offset", from_offset=2, to_offset=4, partitions=[1])
    source = world.read()
    later = [record for record in source if record[2] >= FIRST_MS + 30 * HOUR_MS]
    few = [record for record in source if record[0] == 1 and record[1] in (2, 3)]
    for partition in range(3):
        wanted = [record[2:] for record in later + few if record[0] == partition]
        found = [record[2:] for record in world.read(into) if record[0] == partition]
        assert found[-len(wanted) :] == wanted
        assert len(found) == len(wanted) + (partition == 0)
    with pytest.raises(
        JobFailed, match=r"has begun with .*, not with .*; give the same options to continue this restore"
    ):
        restored(spark, world, into=into, append=True, name="by-offset", from_offset=3)


def test_a_restore_continues_after_the_records_that_an_interrupted_run_wrote(spark: SparkSession, world: World) -> None:
    """The first run writes 7 records of one partition and 20 of another before it fails."""
    into = f"{world.topic}-into"
    world.make()
    world.make(topic=into)
    world.write(60)
    world.archive(spark)
    source = world.read()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore, "TopicWriter", part_of_it)
        with pytest.raises(JobFailed, match="must end at 20"):
            restored(spark, world, into=into)
    assert len(world.read(into)) == 27
    result = restored(spark, world, into=into)
    assert result.already_there == {0: 7, 1: 20, 2: 0}
    assert [record[:1] + record[2:] for record in world.read(into)] == [record[:1] + record[2:] for record in source]


def test_a_record_that_the_target_would_refuse_is_found_before_anything_is_written(
    spark: SparkSession, world: World
) -> None:
    """The last byte counts: the target that is large enough accepts the record, though it cannot be compressed."""
    into = f"{world.topic}-into"
    world.make(1, max_message_bytes="3000000")
    world.make(1, topic=into)
    world.write(5, 1)
    assert world.client.send(world.topic, [os.urandom(2_000_000)], message_max_bytes=4_000_000) == [None]
    world.write(5, 1)
    world.archive(spark)
    largest_bytes = 2_000_000 + 61 + 4 + 3 + 1 + 4 + 1
    world.set_config({"max.message.bytes": str(largest_bytes - 1)}, into)
    with pytest.raises(Refused, match=f"at offset 5 of partition 0 has {largest_bytes} bytes before compression"):
        restored(spark, world, into=into)
    assert world.read(into) == []
    world.set_config({"max.message.bytes": str(largest_bytes)}, into)
    restored(spark, world, into=into)
    assert world.read(into) == world.read()


def test_many_records_are_restored_into_a_topic_that_accepts_only_small_batches(
    spark: SparkSession, world: World
) -> None:
    into = f"{world.topic}-into"
    world.make(1)
    world.make(1, topic=into, max_message_bytes="5000")
    world.client.write(world.topic, [os.urandom(900) for _ in range(200)])
    world.archive(spark)
    restored(spark, world, into=into)
    assert [record[4] for record in world.read(into)] == [record[4] for record in world.read()]


def test_a_restore_waits_for_the_end_of_an_open_transaction_and_writes_nothing_before(
    spark: SparkSession, world: World
) -> None:
    world.make(1)
    world.write(5, 1)
    world.archive(spark)
    long = {"transaction.timeout.ms": 900_000}  # The coordinator must not end it, however busy the machine is.
    producer = Producer({"bootstrap.servers": world.bootstrap, "transactional.id": world.topic, **long})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(world.topic, b"open")
    assert producer.flush(PATIENCE_S) == 0
    with pytest.raises(Refused, match=r"transactions are open in the partitions 0 \(from offset 5\); wait until"):
        restored(spark, world, append=True)
    producer.abort_transaction(PATIENCE_S)
    assert restored(spark, world, append=True).written == {0: 5}


def test_a_second_restore_into_the_same_topic_is_refused(spark: SparkSession, world: World) -> None:
    world.make(1)
    world.write(5, 1)
    result = world.archive(spark)
    (world.folder / "restores").mkdir()
    with (
        RestoreNotes(LocalFolder(str(world.folder)), in_archive=True).restored_by_us(result.topic_id),
        pytest.raises(
            JobFailed, match=r"process \d+ on .* is restoring into the same topic; wait until that run has ended"
        ),
    ):
        restored(spark, world, append=True)


def test_a_read_only_archive_is_restored_with_its_state_in_another_folder(
    spark: SparkSession, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into, made = f"{world.topic}-into", LocalFolder.make
    world.make()
    world.write(9)
    world.archive(spark)

    def make(folder: LocalFolder, *names: str) -> None:
        """Fail for the archive: root may write into a folder even if its mode forbids it."""
        if folder.path == world.folder:
            with folder._as_job_failed("cannot be written"):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        made(folder, *names)

    monkeypatch.setattr(LocalFolder, "make", make)
    told = "Read-only file system; a restore writes its plan into the archive, or into another folder with state=FOLDER"
    with pytest.raises(Refused, match=told):
        restored(spark, world, into=into, create=True)
    assert into not in world.client.admin.list_topics(timeout=PATIENCE_S).topics
    state = {"state": str(tmp_path / "state")}
    assert restored(spark, world, into=into, create=True, **state).written == {0: 3, 1: 3, 2: 3}
    assert restored(spark, world, into=into, create=True, **state).already_there == {0: 3, 1: 3, 2: 3}
    assert not (world.folder / "restores").exists()


def test_a_restore_does_not_continue_with_other_records_than_it_began_with(spark: SparkSession, world: World) -> None:
    """Newer commits do not count; deleted records and missing files are refused."""
    into = f"{world.topic}-into"
    world.make(1)
    world.make(1, topic=into)
    for _ in range(2):
        world.write(5, 1)
        world.archive(spark)
    restored(spark, world, into=into)
    world.write(5, 1)
    world.archive(spark)
    assert restored(spark, world, into=into).already_there == {0: 10}
    world.write_as_another_program(spark, "offset >= 3", replace=True)
    with pytest.raises(JobFailed, match="has begun with 10 records, but its options now select 7 records: somebody"):
        restored(spark, world, into=into)
    world.damage(f"**/{world.topic}/data/**/*.parquet").unlink()
    with pytest.raises(JobFailed, match=r"the data file .*\.parquet is missing; .* Restore the file from a backup"):
        restored(spark, world, into=into)


LONG_QUIET_S = 8.0
"""This is longer than a busy machine delays a task that sends."""


@pytest.mark.parametrize("is_again", [True, False], ids=["tried-again", "of-another-stage"])
def test_a_task_waits_for_records_still_sent_by_an_earlier_task(world: World, is_again: bool) -> None:
    """Requests of the earlier task's dead executor still arrive; without the wait records would be written twice."""
    world.make(1)
    rows = [(0, FIRST_MS + number, None, b"%d" % number, None) for number in range(40)]
    before = TopicWriter(world.bootstrap, world.topic, {0: 0}, {0: len(rows)}, {0: 0})

    def slowly() -> Iterator[Record]:
        for row in rows:
            yield row
            time.sleep(0.05)

    dead = threading.Thread(target=lambda: list(before(slowly())))
    dead.start()
    wait_for(lambda: world.client.ends(world.topic)[1] > 0)
    again = TopicWriter(world.bootstrap, world.topic, {0: 0}, {0: len(rows)}, {0: 0}, LONG_QUIET_S)
    written = list(again(iter(rows), is_again=is_again))
    dead.join()
    assert written == [(0, 0, 40)]
    assert [record[4] for record in world.read()] == [row[3] for row in rows]


def test_a_failed_task_sends_none_of_its_queued_records(world: World) -> None:
    """Its input ends with an error; another task writes the records that it has queued."""
    world.make(1)

    def broken() -> Iterator[Record]:
        yield 0, FIRST_MS, None, b"first", None
        raise EOFError

    writer = TopicWriter(world.bootstrap, world.topic, {0: 0}, {0: 2}, {0: 0})
    with pytest.raises(EOFError):
        list(writer(broken()))
    assert list(writer(iter([(0, FIRST_MS, None, b"%d" % number, None) for number in range(2)]))) == [(0, 2, 0)]
    assert [record[4] for record in world.read()] == [b"0", b"1"]


def test_a_spark_session_that_may_run_two_tasks_of_a_partition_is_refused(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = spark.sparkContext.getConf().set("spark.speculation", "true")
    monkeypatch.setattr(SparkContext, "getConf", lambda _: conf)
    with pytest.raises(JobFailed, match=r"spark\.speculation=true: .* start the Spark session of the restore with"):
        restored(spark, world)


def part_of_it(bootstrap: str, topic: str, bases: dict[int, int], records: dict[int, int], *more: Any) -> Any:
    """Make a writer that stops after some records of each partition."""
    writer = TopicWriter(bootstrap, topic, bases, records, *more)

    def write(rows: Any, *, is_again: bool = False) -> Any:
        each = list(rows)
        return writer(each[: {0: 7, 1: 20, 2: 0}[each[0][0]]], is_again=is_again)

    write.topic = topic  # type: ignore[attr-defined]
    write.records = records  # type: ignore[attr-defined]
    return write


def test_a_restore_is_refused_if_another_client_wrote_to_the_target(spark: SparkSession, world: World) -> None:
    into = f"{world.topic}-into"
    world.make(1)
    world.make(1, topic=into)
    world.write(10, 1)
    world.archive(spark)
    restored(spark, world, into=into)
    world.write_values(into, [b"another's"])
    with pytest.raises(
        JobFailed,
        match=r"into-0 ends at offset 11, but must end between 0 and 10; another client has written to this partition$",
    ):
        restored(spark, world, into=into)


def test_a_restore_is_refused_if_the_target_would_not_keep_the_records(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(9)
    world.archive(spark)
    into = f"{world.topic}-few"
    world.make(2, topic=into)
    with pytest.raises(JobFailed, match="has 2 partitions, but the records need 3; add partitions"):
        restored(spark, world, into=into)
    assert world.read(into) == []
    with pytest.raises(JobFailed, match="has no such topic; create=true creates the topic with 3 partitions"):
        restored(spark, world, into=f"{world.topic}-nowhere")
