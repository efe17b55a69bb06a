"""The job `archive`, with Spark's real connector and a real broker."""

import msgspec
import pytest
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_tables import newest_head
from barnabas_jobs.kafka import topics
from barnabas_jobs.planning.archived import Identity
from barnabas_jobs.planning.errors import JobFailed, Refused
from harness.server_process import free_port


def test_archive_keeps_every_field_of_every_record_and_verify_finds_them_equal(
    spark: SparkSession, world: World
) -> None:
    world.make()
    world.write(120)
    result = world.archive(spark)
    assert (result.records, result.commits) == (120, 1)
    assert world.archived(spark) == world.read()
    verified = world.verify(spark)
    assert verified.fine
    assert [each.archive_records for each in verified.partitions] == [40, 40, 40]


def test_a_recreated_topic_is_archived_under_its_new_topic_id(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(30)
    first = world.archive(spark)
    before = world.read()
    world.delete()
    world.make()
    world.write(9)
    with pytest.raises(JobFailed, match="was deleted and created again"):
        world.verify(spark)
    second = world.archive(spark)
    assert first.topic_id != second.topic_id
    assert (second.records, second.archived_records) == (9, 9)
    assert world.archived(spark, first.topic_id) == before
    assert world.archived(spark, second.topic_id) == world.read()


def test_files_of_an_interrupted_run_are_ignored_and_then_removed(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(30)
    result = world.archive(spark)
    data = world.folder / "barnabas" / world.topic / "data"
    left = data / "run=00000001-0123456789ab" / "date=2013-01-01"
    left.mkdir(parents=True)
    (left / "part-0.parquet").write_bytes(next(data.rglob("*.parquet")).read_bytes())
    assert len(world.archived(spark)) == result.records
    assert world.archive(spark).swept_runs == 1
    assert not left.exists()
    # The second run took the number of the commit, so that a run that still has that folder cannot commit it.
    head = world.archived_topic(spark).head
    assert head is not None
    assert (head.number, head.fence) == (1, True)
    assert world.archive(spark).archived_records == result.records


def test_archives_of_two_topics_share_a_folder(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(3)
    world.archive(spark)
    other = f"{world.topic}-other"
    world.make(topic=other)
    world.write(6, topic=other)
    assert world.archive(spark, topic=other).table == f"barnabas.{other}"
    assert world.tables(spark).topic(other).records == 6
    assert len(world.archived(spark)) == 3


def test_a_log_that_lost_its_tail_is_refused(spark: SparkSession, world: World) -> None:
    """The same happens to a log after an unclean election, or on an older disk."""
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    tables = world.tables(spark)
    table = tables.load(world.topic)
    assert table is not None
    head = newest_head(table)
    assert head is not None
    other = msgspec.structs.replace(head, tails={0: head.tails[0]._replace(checksum=1)})
    with table.transaction() as transaction:
        identity = Identity(*(table.properties[f"barnabas.{name}"] for name in ("topic", "topic-id", "cluster-id")))
        transaction.add_files([], other.properties(identity), check_duplicate_files=False)
    world.write(10, 1)
    with pytest.raises(Refused, match=r"-0 has another record at offset 9 than the archive .* now ends at 20"):
        world.archive(spark)


def test_archive_names_a_missing_topic_and_an_unreachable_cluster(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(JobFailed, match=f"topic={world.topic}: the cluster at .* has no such topic"):
        world.archive(spark)
    monkeypatch.setattr(topics, "CONNECT_S", 0.5)
    with pytest.raises(JobFailed, match=r"bootstrap=127\.0\.0\.1:\d+: no broker answered"):
        world.archive(spark, bootstrap=f"127.0.0.1:{free_port()}")
    assert not (world.folder / "catalog.db").exists()


def test_records_deleted_before_their_archival_are_an_error_or_recorded_as_lost(
    spark: SparkSession, world: World
) -> None:
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    world.write(10, 1)
    world.delete_before({0: 15})
    with pytest.raises(JobFailed, match=r"partition 0 \[10, 15\) was deleted from the topic before it was archived"):
        world.archive(spark)
    result = world.archive(spark, fail_on_data_loss=False)
    assert [(each.partition, each.start, each.end) for each in result.lost] == [(0, 10, 15)]
    assert [record[1] for record in world.archived(spark)] == [*range(10), *range(15, 20)]
    assert world.verify(spark).fine


def test_delete_archived_deletes_verified_records_from_the_topic(spark: SparkSession, world: World) -> None:
    world.make()
    world.write(30)
    before = world.read()
    assert world.archive(spark, delete_archived=True).deleted_before == {0: 10, 1: 10, 2: 10}
    assert [world.client.ends(world.topic, partition) for partition in range(3)] == [(10, 10)] * 3
    assert world.archived(spark) == before


def test_verify_names_a_data_file_that_is_missing_truncated_or_damaged(spark: SparkSession, world: World) -> None:
    world.make(1)
    world.write(3, 1)
    world.archive(spark)
    file = world.damage("**/*.parquet")
    content = file.read_bytes()
    file.write_bytes(bytes(len(content)))
    with pytest.raises(
        JobFailed, match="a data file of the archive cannot be read; restore the file that Spark names from a backup"
    ):
        world.verify(spark)
    file.write_bytes(content[:-1])
    with pytest.raises(JobFailed, match=f"has {len(content) - 1} bytes; the table .* expects {len(content)} bytes"):
        world.verify(spark)
    file.unlink()
    with pytest.raises(JobFailed, match=r"the data file .* is missing"):
        world.verify(spark)
