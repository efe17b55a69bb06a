"""Keys and values with the number of a schema become columns; what cannot be decoded goes to the table of rejected."""

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from aiohttp import web
from confluent_kafka import Producer
from jobs_world import FIRST_MS, World
from pyspark.sql import SparkSession
from test_continuous_archive import await_archived

from barnabas_jobs.jobs import archive, compact
from barnabas_jobs.kafka.schema_registry import SchemaRegistry, Subject
from barnabas_jobs.planning.errors import BadOption, JobFailed, Refused
from barnabas_registry.schemas import RegistrySettings, Schema
from harness.deadline import PATIENCE_S
from harness.schema_registry import SmallRegistry, avro, flight_file, framed, in_a_thread, protobuf, serialized
from harness.server_process import free_port


def order(**fields: Any) -> str:
    return json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    )


FIRST = order(id="int", note="string")
SECOND = order(id="long", note="string", price=["null", {"type": "bytes", "logicalType": "decimal", "precision": 9}])
CHANGED = order(id="string", note="string")
VERSIONS = {"schema": FIRST, "id": 1}, {"schema": SECOND, "id": 2}


def answers(subject: str, *versions: Mapping[str, Any]) -> dict[str, object]:
    """Return the answers of a registry about a subject whose versions, from 1 on, are these."""
    numbers = list(range(1, len(versions) + 1))
    path = f"/subjects/{subject}/versions"
    found: dict[str, object] = {path: numbers, f"{path}?deleted=true": numbers}
    for number, each in zip(numbers, versions, strict=True):
        found[f"{path}/{number}?deleted=true"] = each
        found[f"{path}/{number}?deleted=true&format=serialized"] = each
    return found


def write(world: World, *records: tuple[bytes | None, bytes | None]) -> None:
    producer = Producer(world.client.settings)
    for key, value in records:
        producer.produce(world.topic, value, key, partition=0, timestamp=FIRST_MS)
    assert producer.flush(PATIENCE_S) == 0


def rows(spark: SparkSession, world: World, name: str, *columns: str) -> list[dict[str, Any]]:
    """Return rows as an engine that is not ours reads them."""
    table = world.tables(spark).load(name)
    assert table is not None
    found: list[dict[str, Any]] = table.scan(selected_fields=columns or ("*",)).to_arrow().sort_by("offset").to_pylist()
    return found


def archive_in_two_runs(spark: SparkSession, world: World, registry: SmallRegistry, address: str) -> None:
    """Archive records by a first schema and by a second one; the third one is refused."""
    key = framed(9, b"\0" + protobuf("demo.Flight", flight_file(), flight_number=7))
    write(
        world,
        (key, framed(1, avro(FIRST, {"id": 1, "note": "a"}))),
        (None, None),
        (key, b"no schema"),
        (b"plain", framed(3, b"x")),
    )
    result = world.archive(spark, schema_registry=address)
    assert (result.records, result.mismatched) == (4, 2)
    registry.answers = {**registry.answers, **answers(f"{world.topic}-value", *VERSIONS)}
    write(
        world,
        (None, framed(2, avro(SECOND, {"id": 2**40, "note": "b", "price": Decimal(3)}))),
        (None, framed(1, b"\2")),
    )
    assert world.archive(spark, schema_registry=address).mismatched == 1
    compact.run(spark, compact.Options(topic=world.topic, archive=world.location))
    registry.answers = {**registry.answers, **answers(f"{world.topic}-value", {"schema": CHANGED, "id": 4})}
    write(world, (None, None))
    told = rf"{world.topic}-value: the latest schema, 4, .*decoded_value.id is string by the schema, and int64 in"
    with pytest.raises(Refused, match=told):
        world.archive(spark, schema_registry=address)


def test_keys_and_values_become_columns_and_misfits_go_to_the_table_of_rejected(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEMA_REGISTRY_USER_INFO", "me:secret")
    world.make(1)
    flight = {"schema": serialized(flight_file()), "schemaType": "PROTOBUF", "id": 9}
    registry = SmallRegistry({**answers(f"{world.topic}-value", VERSIONS[0]), **answers(f"{world.topic}-key", flight)})
    with in_a_thread(registry) as address:
        archive_in_two_runs(spark, world, registry, address)
    assert {each["Authorization"] for each in registry.headers} == {"Basic bWU6c2VjcmV0"}
    found = rows(spark, world, world.topic, "offset", "decoded_key", "decoded_value", "rejected")
    seven = {"flight_number": 7, "left": None}
    assert [each["decoded_key"] for each in found] == [seven, None, None, None, None, None]
    assert [each["decoded_value"] for each in found] == [
        {"id": 1, "note": "a", "price": None}, None, None, None, {"id": 2**40, "note": "b", "price": Decimal(3)}, None,
    ]  # fmt: skip
    rejected = rows(spark, world, f"{world.topic}$rejected")
    assert [(each["offset"], each["commit"], each["value"]) for each in rejected] == [
        (2, 0, b"no schema"), (3, 0, framed(3, b"x")), (5, 1, framed(1, b"\2")),
    ]  # fmt: skip
    assert [each["rejected"] for each in found if each["rejected"]] == [each["reason"] for each in rejected]
    assert rejected[0]["reason"] == "value: it does not begin with the byte 0 and the number of a schema"
    assert f"schema 3: it is no version of the subject {world.topic}-value" in rejected[1]["reason"]
    assert rejected[2]["reason"].startswith("value: schema 1: the bytes do not have this schema")
    assert world.archived(spark) == world.read()[:6]
    assert world.verify(spark).fine


@pytest.mark.soak(only=True)
def test_a_continuous_archive_decodes_by_a_schema_that_came_after_it_began(spark: SparkSession, world: World) -> None:
    world.make(1)
    registry, stopping = SmallRegistry(answers(f"{world.topic}-value", VERSIONS[0])), threading.Event()
    write(world, (None, framed(1, avro(FIRST, {"id": 1, "note": "a"}))))
    with in_a_thread(registry) as address, ThreadPoolExecutor(1) as thread:
        continuous = {"continuous": True, "trigger_seconds": 1, "schema_registry": address}
        chosen = msgspec.convert({**world.options(), **continuous}, archive.Options)
        running = thread.submit(archive.run, spark, chosen, stopping=stopping)
        try:
            await_archived(spark, world, 1)
            registry.answers = {**registry.answers, **answers(f"{world.topic}-value", *VERSIONS)}
            write(world, (None, framed(2, avro(SECOND, {"id": 2**40, "note": "b", "price": Decimal(3)}))))
            await_archived(spark, world, 2)
        finally:
            stopping.set()
        assert running.result(PATIENCE_S).mismatched == 0
    found = rows(spark, world, world.topic, "offset", "decoded_value")
    assert [each["decoded_value"] for each in found] == [
        {"id": 1, "note": "a", "price": None}, {"id": 2**40, "note": "b", "price": Decimal(3)},
    ]  # fmt: skip


def asked(registry_answers: Mapping[str, object], pauses_s: list[float] | None = None) -> Subject | None:
    """Return what a client finds about the subject t-value."""
    with in_a_thread(SmallRegistry(registry_answers)) as address:
        sleep: Callable[[float], None] = (pauses_s if pauses_s is not None else []).append
        return SchemaRegistry(RegistrySettings(address), sleep).subject("t-value")


def test_all_versions_of_a_subject_are_read_and_a_deleted_one_is_not_the_latest() -> None:
    given = answers("t-value", {"schema": FIRST, "id": 5}, {"schema": SECOND, "id": 6})
    given["/subjects/t-value/versions"] = [1]
    first = Schema(5, "AVRO", FIRST)
    assert asked(given) == Subject("t-value", first, {5: first, 6: Schema(6, "AVRO", SECOND)})


def web_answer(status: int, text: str) -> Any:
    return web.Response(status=status, text=text, headers={"Location": "http://127.0.0.1:1/"})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (web_answer(302, ""), "was answered with status 302; check address"),
        (
            web_answer(401, '{"message": "who are you?"}'),
            r"status 401 \(who are you\?\); check address, user and rights",
        ),
        (web_answer(404, "<html>"), "status 404; check address"),
        (web_answer(200, "<html>"), "has no list of versions .* is it a schema registry"),
        (web_answer(200, "1" * 300_000), "more than 262144 bytes"),
        (list(range(1001)), "1001 versions; allowed: 1000"),
    ],
)
def test_a_registry_with_another_answer_is_refused(answer: object, words: str) -> None:
    path = "/subjects/t-value/versions"
    with pytest.raises(Refused, match=words):
        asked({path: answer, f"{path}?deleted=true": answer})


def test_a_registry_that_does_not_answer_is_asked_for_half_a_minute() -> None:
    pauses_s: list[float] = []
    client = SchemaRegistry(RegistrySettings(f"http://127.0.0.1:{free_port()}"), pauses_s.append)
    with pytest.raises(JobFailed, match=r"was not answered after 6 tries: ConnectionRefusedError"):
        client.subject("t-value")
    assert pauses_s == [1, 2, 4, 8, 16]
    with pytest.raises(JobFailed, match="6 tries: status 503"):
        asked({"/subjects/t-value/versions": web_answer(503, "")})


def test_a_topic_without_a_subject_is_refused(spark: SparkSession, world: World) -> None:
    world.make(1)
    write(world, (None, b"one"))
    told = f"there is no subject {world.topic}-key or {world.topic}-value"
    with in_a_thread(SmallRegistry({})) as address, pytest.raises(Refused, match=told):
        world.archive(spark, schema_registry=address)
    with pytest.raises(Refused, match="registry_truststore=/nowhere: No such file"):
        world.archive(spark, schema_registry=address, registry_truststore="/nowhere")
    with pytest.raises(BadOption, match="allowed: the address of a schema registry without a user"):
        archive.Options(**world.options(), schema_registry="http://me:secret@host")
    with pytest.raises(BadOption, match="schema_registry=http://a; allowed: only one of these options"):
        archive.Options(**world.options(), schema="/s", schema_registry="http://a")
