"""Values that are JSON become columns; values that do not fit the schema are kept or fail the run."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from jobs_world import FIRST_MS, World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import compact
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.spark.json_columns import read_schema
from harness.deadline import PATIENCE_S

SCHEMA = {
    "type": "object",
    "required": ["carrier", "delay"],
    "properties": {
        "carrier": {"type": "string"},
        "delay": {"type": ["integer", "null"]},
        "legs": {
            "type": "array",
            "items": {"type": "object", "required": ["to"], "properties": {"to": {"type": "string"}}},
        },
    },
}
FITS: list[bytes | None] = [
    b'{"carrier": "AA", "delay": -3, "legs": [{"to": "JFK"}]}',
    b'{"carrier": "UA", "delay": null, "other": 1}',
    None,
]
DOES_NOT: list[bytes | None] = [
    b'{"delay": 3}',
    b'{"carrier": "AA", "delay": "late"}',
    b'{"carrier": "AA", "delay": 1, "legs": [{"to": "JFK"}, {"from": "LGA"}]}',
    b'{"carrier": "AA"',
    b'["AA", 3]',
    b"\xff\x00",
    b"",
    b"null",
]


def write(world: World, values: list[bytes | None]) -> None:
    producer = Producer(world.client.settings)
    for value in values:
        producer.produce(world.topic, value, b"key", partition=0, timestamp=FIRST_MS)
    assert producer.flush(PATIENCE_S) == 0


def rows(spark: SparkSession, world: World) -> list[Any]:
    files = spark.read.parquet(*world.archived_topic(spark).paths())
    return files.orderBy("offset").select("json", "json_fits", "value").collect()


def schema_file(folder: Path, text: str) -> str:
    path = folder / "schema"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_json_values_become_columns_and_mismatched_values_are_kept_and_counted(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(1)
    write(world, FITS + DOES_NOT)
    schema = schema_file(tmp_path, json.dumps(SCHEMA))
    result = world.archive(spark, schema=schema, on_mismatch="keep")
    assert (result.records, result.mismatched) == (len(FITS + DOES_NOT), len(DOES_NOT))
    found = rows(spark, world)
    first, second, tombstone = found[:3]
    assert (first.json.carrier, first.json.delay, first.json.legs[0].to) == ("AA", -3, "JFK")
    assert (second.json.carrier, second.json.delay) == ("UA", None)
    assert (tombstone.json, tombstone.json_fits) == (None, None)
    assert [row.json_fits for row in found] == [True, True, None] + [False] * len(DOES_NOT)
    assert {row.json for row in found[3:]} == {None}
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine


def test_a_schema_that_changes_adds_columns_or_is_refused(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make(1)
    write(world, [b'{"carrier": "AA"}'])
    world.archive(spark)
    write(world, [b'{"carrier": "UA", "delay": 3}'])
    world.archive(spark, schema=schema_file(tmp_path, "carrier STRING"))
    write(world, [b'{"carrier": "DL", "delay": 4}'])
    world.archive(spark, schema=schema_file(tmp_path, "carrier STRING, delay BIGINT"))
    table = world.tables(spark).load(world.topic)
    assert table is not None
    found = table.scan(selected_fields=("offset", "json")).to_arrow().sort_by("offset")["json"].to_pylist()
    assert found == [None, {"carrier": "UA", "delay": None}, {"carrier": "DL", "delay": 4}]
    compact.run(spark, compact.Options(topic=world.topic, archive=world.location))
    table.refresh()
    assert table.scan(selected_fields=("offset", "json")).to_arrow().sort_by("offset")["json"].to_pylist() == found
    write(world, [b'{"carrier": 1}'])
    with pytest.raises(Refused, match=r"the field json.carrier is bool by the schema, and string in the table"):
        world.archive(spark, schema=schema_file(tmp_path, "carrier BOOLEAN"), on_mismatch="keep")
    assert world.archived(spark) == world.read()[:3]


def test_a_value_that_does_not_fit_fails_the_run_and_is_named(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(1)
    write(world, [*FITS, DOES_NOT[0]])
    schema = schema_file(tmp_path, "carrier STRING NOT NULL, delay BIGINT, at TIMESTAMP")
    with pytest.raises(JobFailed, match=r'partition 0 offset 3 does not fit the schema: {"delay": 3}'):
        world.archive(spark, schema=schema)
    assert list(world.folder.glob("**/run=*")) == []
    assert world.archive(spark, schema=schema, on_mismatch="keep").mismatched == 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "the file is neither a JSON Schema nor Spark's DDL"),
        ("a NONSENSE", "the file is neither a JSON Schema nor Spark's DDL"),
        ('{"type": "array", "items": {"type": "string"}}', "the root is array<string>; allowed: an object"),
        (
            '{"type": "object", "properties": {"a": {"oneOf": []}}}',
            "'a' is {\"oneOf\": \\[\\]}; allowed: one type of",
        ),
        ('{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}', "allowed: one type of string, "),
    ],
)
def test_an_unusable_schema_file_is_refused(spark: SparkSession, tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(JobFailed, match=told):
        read_schema(schema_file(tmp_path, text))
