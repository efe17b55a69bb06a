"""The job `verify` finds and names differences between an archive and a topic."""

from typing import Any

import pyarrow.parquet
import pytest
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import verify
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.spark.records import in_ranges


def test_verify_names_a_record_that_differs(spark: SparkSession, world: World) -> None:
    """The other topic has another value at one offset, and one record fewer."""
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


def test_verify_reports_a_topic_that_lost_its_last_records(spark: SparkSession, world: World) -> None:
    """This happens after an unclean election: the remaining records equal the archived ones."""
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


def test_ranges_of_thousands_of_partitions_are_joined_as_one_table(spark: SparkSession) -> None:
    """A condition with one term for each partition was too deep for the JVM's stack."""
    ranges = [OffsetRange(partition, 1, 3) for partition in range(2000)]
    records = spark.range(4).selectExpr("1999 AS partition", "id AS offset", "'kept' AS value")
    assert in_ranges(records, ranges).collect() == records.where("offset IN (1, 2)").collect()


def test_verify_reports_records_that_are_twice_in_the_archive(spark: SparkSession, world: World) -> None:
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    world.write_as_another_program(spark, "offset >= 3 and offset < 5", replace=False)
    found = world.verify(spark)
    assert not found.fine
    assert found.damaged_partitions == [0]
    assert found.differing_records == {verify.TWICE: 2}


def test_verify_reports_records_that_another_program_has_deleted_but_does_not_fail(
    spark: SparkSession, world: World
) -> None:
    """A person may have the right that all records with this key go."""
    world.make(1)
    world.write_values(world.topic, [b"a", b"b", b"c"])
    world.archive(spark)
    world.write_as_another_program(spark, "offset != 1", replace=True)
    found = world.verify(spark)
    assert found.fine
    assert (found.deleted_records, found.damaged_partitions) == (1, [])
    assert found.differing_records == {verify.ONLY_IN_TOPIC: 1}
    world.write_values(world.topic, [b"d"])
    assert world.archive(spark).records == 1
    assert world.verify(spark).fine


@pytest.mark.parametrize("column", ["offset", "value"])
def test_verify_finds_a_flipped_bit_in_records_that_the_topic_no_longer_has(
    spark: SparkSession, world: World, column: str
) -> None:
    """S3, for example, may flip a bit after years and has no checksums that Hadoop checks."""
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
    """Flip the last bit of a column's only page."""
    path = world.damage(f"**/{world.topic}/data/**/*.parquet")
    group = pyarrow.parquet.ParquetFile(path).metadata.row_group(0)
    chunks = [group.column(number) for number in range(group.num_columns)]
    (chunk,) = (each for each in chunks if each.path_in_schema == column)
    begin = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
    content = bytearray(path.read_bytes())
    content[begin + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def test_verify_reports_records_removed_by_compaction_but_does_not_fail(spark: SparkSession, world: World) -> None:
    """The other topic never had the record, which looks the same."""
    other = f"{world.topic}-other"
    world.make(1)
    world.make(1, topic=other, cleanup_policy="compact")
    world.write_values(world.topic, [b"a", b"b"])
    world.write_values(other, [b"a"])
    world.archive(spark)
    found = world.verify(spark, against=other, match="order")
    assert found.fine
    assert found.differing_records == {verify.ONLY_IN_ARCHIVE: 1}


def test_verify_fails_for_a_missing_or_empty_archive(spark: SparkSession, world: World) -> None:
    world.make(1)
    with pytest.raises(JobFailed, match="there is no archive of the topic"):
        world.verify(spark)
    world.archive(spark)
    with pytest.raises(JobFailed, match="there is no archive of the topic"):
        world.verify(spark)


def test_verify_fails_if_the_topic_is_recreated_during_the_run(
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
