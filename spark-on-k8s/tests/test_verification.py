"""The job `verify` finds what is not equal, and names it."""

from typing import Any

import pyarrow.parquet
import pytest
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from barnabas_jobs.jobs import verify
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ranges import OffsetRange
from barnabas_jobs.spark.records import in_ranges, of_topic, write_parquet


def test_a_record_that_differs_is_named(spark: SparkSession, world: World) -> None:
    """The other topic has another value at one offset, and one record less."""
    other = f"{world.topic}-other"
    world.make(1)
    world.make(1, topic=other)
    for topic, values in ((world.topic, [b"a", b"b", b"c", b"d"]), (other, [b"a", b"X", b"c"])):
        world.write_values(topic, values)
    world.archive(spark)
    found = world.verify(spark, against=other)
    assert not found.fine
    assert found.differing_records == {verify.OTHER_CONTENT: 1}
    assert found.differences == [verify.Difference(0, 1, verify.OTHER_CONTENT)]
    assert found.shorter_partitions == [0]
    by_order = world.verify(spark, against=other, match="order")
    assert by_order.differing_records == {verify.ONLY_IN_ARCHIVE: 1, verify.OTHER_CONTENT: 1}


def test_a_topic_that_lost_its_last_records_is_not_equal(spark: SparkSession, world: World) -> None:
    """As after an unclean election: what is left of it is what the archive has."""
    other = f"{world.topic}-other"
    world.make(1)
    world.make(1, topic=other)
    for topic, values in ((world.topic, [b"a", b"b", b"c"]), (other, [b"a", b"b"])):
        world.write_values(topic, values)
    world.archive(spark)
    found = world.verify(spark, against=other)
    assert (found.differing_records, found.shorter_partitions) == ({}, [0])
    assert not found.fine
    assert found.summary == "partition 0 of the topic ends at a lower offset than the archive"


def test_ranges_of_thousands_of_partitions_are_one_table(spark: SparkSession) -> None:
    """As a condition with a term for each partition they were too deep for the JVM's stack."""
    ranges = [OffsetRange(partition, 1, 3) for partition in range(2000)]
    records = spark.range(4).selectExpr("1999 AS partition", "id AS offset", "'kept' AS value")
    assert in_ranges(records, ranges).collect() == records.where("offset IN (1, 2)").collect()


def test_records_that_are_twice_in_the_archive_are_found(spark: SparkSession, world: World) -> None:
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    folder = ArchiveFolder(LocalFolder(str(world.folder)))
    (entry,) = folder.ledger().entries
    run = folder.new_run(entry.topic_id, 1)
    write_parquet(of_topic(spark, world.bootstrap, world.topic, [OffsetRange(0, 3, 5)]), folder.store.url(run))
    world.rewrite_ledger(files=[*entry.files, *folder.synced(run)])
    found = world.verify(spark)
    assert not found.fine
    assert found.damaged_partitions == [0]
    assert found.differing_records == {verify.TWICE: 2}


@pytest.mark.parametrize("column", ["offset", "value"])
def test_damage_of_what_the_topic_does_not_have_any_more_is_found(
    spark: SparkSession, world: World, column: str
) -> None:
    """One bit, where the store has no checksums of its own, as S3 after years."""
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    world.delete_before({0: 10})
    assert world.verify(spark).fine
    flip_a_bit(world, column)
    with pytest.raises(
        JobFailed, match="a data file of the archive cannot be read; restore the file that Spark names from a backup"
    ):
        world.verify(spark)


def flip_a_bit(world: World, column: str) -> None:
    """The last one of a column's only page."""
    path = world.damage("data/**/*.parquet")
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    begin = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
    content = bytearray(path.read_bytes())
    content[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink()


def test_what_compaction_removed_since_is_told_and_no_fault(spark: SparkSession, world: World) -> None:
    """As if: the other topic never had the record."""
    other = f"{world.topic}-other"
    world.make(1)
    world.make(1, topic=other, cleanup_policy="compact")
    world.write_values(world.topic, [b"a", b"b"])
    world.write_values(other, [b"a"])
    world.archive(spark)
    found = world.verify(spark, against=other, match="order")
    assert found.fine
    assert found.differing_records == {verify.ONLY_IN_ARCHIVE: 1}


def test_an_archive_that_is_not_there_is_told(spark: SparkSession, world: World) -> None:
    world.make(1)
    with pytest.raises(JobFailed, match="there is no archive, or it has no records"):
        world.verify(spark)
    world.archive(spark)
    with pytest.raises(JobFailed, match="there is no archive, or it has no records"):
        world.verify(spark)


def test_a_topic_that_is_made_again_during_a_run_has_lost_nothing(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make(1)
    world.write(3, 1)
    world.archive(spark)
    compare = verify.compare

    def made_again_meanwhile(*given: Any) -> verify.Result:
        result = compare(*given)
        world.delete()
        world.make(1)
        return result

    monkeypatch.setattr(verify, "compare", made_again_meanwhile)
    with pytest.raises(JobFailed, match=r"was deleted and created again while it was read .*; run the job again"):
        world.verify(spark)
