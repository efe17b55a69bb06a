"""Messages with the number of a schema: what the console makes of them, and of registries and bytes that are broken."""

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from barnabas_console.model.messages import Message
from barnabas_console.registry.client import Missing, Registry, session_of, settings_of
from barnabas_console.registry.values import Values, decoder_of
from barnabas_registry.content import CannotDecode
from barnabas_registry.schemas import InvalidRegistry, RegistrySettings, Schema
from harness.deadline import wait_for
from harness.running_console import Secured, StartConsole
from harness.schema_registry import (
    FLIGHT,
    SmallRegistry,
    avro,
    flight_file,
    framed,
    in_a_thread,
    plane_file,
    protobuf,
    serialized,
)
from harness.server_process import free_port

RECORD = {"number": 7, "card": "4111", "left": 0, "raw": b"\x01\xff"}


@asynccontextmanager
async def client_of(
    address: str, steady_s: Callable[[], float] = lambda: 0.0, user_info: str = ""
) -> AsyncIterator[Registry]:
    settings = RegistrySettings(address, user_info)
    async with session_of(settings) as session:
        yield Registry(settings, session, steady_s)


def read(value: bytes, schema: Schema | Missing) -> tuple[bytes | None, str]:
    message = Values(lambda _: schema, hides=False).read(Message(0, 0, 0, None, value, ()))
    return message.value, "".join(message.schemas)


def test_the_console_shows_searches_and_masks_messages_with_a_schema(
    console_broker: Secured, start_console: StartConsole
) -> None:
    flight = protobuf("demo.Flight", flight_file(), flight_number=9)
    console_broker.client().create_topic("schemas", 1)
    values = (
        framed(1, avro(FLIGHT, RECORD)),
        framed(2, b'{"number": 8, "card": "4111"}'),
        framed(3, b"\x00" + flight),
        framed(4, b"unknown 4111"),
    )
    console_broker.client().write("schemas", list(values), 0)
    registry = SmallRegistry(
        {
            "/schemas/ids/1": {"schema": FLIGHT},
            "/schemas/ids/2": {"schema": "{}", "schemaType": "JSON"},
            "/schemas/ids/3": {"schema": "message Flight {}", "schemaType": "PROTOBUF"},
            "/schemas/ids/3?format=serialized": {"schema": serialized(flight_file()), "schemaType": "PROTOBUF"},
        }
    )
    with in_a_thread(registry) as address:
        properties = f"schema.registry.url={address}\n"
        visitor = start_console(console_broker.open, "--mask", "card", properties=properties).visitor()
        wait_for(lambda: visitor.get("/topics/schemas").status, lambda status: status == 200)
        found = visitor.json("/topics/schemas/messages?from=start")["messages"]
        assert [each["schemas"] for each in found] == [
            ["value: Avro demo.Flight, schema 1"],
            ["value: JSON Schema, schema 2"],
            ["value: Protobuf demo.Flight, schema 3"],
            ["value: schema 4: the registry answers with status 404"],
        ]
        assert json.loads(found[0]["value"]) == {
            "number": 7, "card": "•••", "left": "1970-01-01T00:00:00+00:00", "raw": "01 ff",
        }  # fmt: skip
        assert json.loads(found[2]["value"]) == {"flight_number": "9"}
        assert "4111" not in visitor.get("/topics/schemas/messages?from=start", "application/json").text
        hexed = visitor.get("/topics/schemas/messages?from=start&format=hex", "application/json").text
        assert b"4111".hex(" ") not in hexed
        matching = visitor.json("/topics/schemas/messages?from=start&value=%22number%22%3A%207")["messages"]
        assert [each["offset"] for each in matching] == [0]
        assert "Avro demo.Flight, schema 1" in visitor.get("/topics/schemas/messages?from=start&download=csv").text
        events = visitor.get("/topics/schemas/messages/stream?from=start").text
        assert "Protobuf demo.Flight, schema 3" in events
    assert len(registry.asked) == 5


async def test_a_registry_that_does_not_answer_is_asked_again_after_ten_seconds() -> None:
    now_s = [0.0]
    registry = SmallRegistry({"/schemas/ids/1": {"schema": FLIGHT}})
    async with client_of(f"http://127.0.0.1:{free_port()}", lambda: now_s[0]) as client:
        silent = await client.schema(1)
        assert silent == Missing("the registry does not answer")
        async with registry.serving() as address:
            client._settings = RegistrySettings(address)
            assert await client.schema(1) == silent
            now_s[0] = 10.1
            assert await client.schema(1) == Schema(1, "AVRO", FLIGHT)
    assert read(b"\0\0\0\0\1ab", silent) == (b"\0\0\0\0\1ab", "value: schema 1: the registry does not answer")


async def test_schemas_that_a_registry_lacks_are_asked_for_seldom() -> None:
    now_s = [0.0]
    registry = SmallRegistry({})
    async with registry.serving() as address, client_of(address, lambda: now_s[0], "me:secret") as client:
        for number in (*range(100), *range(100)):
            assert await client.schema(number) == Missing("the registry answers with status 404")
        assert "not asked for" in str(await client.schema(100))
        assert len(registry.asked) == 100
        now_s[0] = 30.1
        assert await client.schema(100) == Missing("the registry answers with status 404")
    assert registry.headers[0]["Authorization"] == f"Basic {base64.b64encode(b'me:secret').decode()}"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (web.Response(status=302, headers={"Location": "http://127.0.0.1:1/inside"}), "status 302"),
        (web.Response(status=401), "status 401"),
        (web.Response(text="no JSON"), "the answer of the registry is invalid"),
        (web.Response(text='{"schema": 7}'), "the answer of the registry is invalid"),
        (web.Response(text="x" * 300_000), "more than 262144 bytes"),
    ],
)
async def test_an_answer_that_is_no_schema_is_a_reason_and_redirects_are_not_followed(
    answer: web.Response, reason: str
) -> None:
    async with SmallRegistry({"/schemas/ids/1": answer}).serving() as address, client_of(address) as client:
        found = await client.schema(1)
    assert isinstance(found, Missing)
    assert reason in found.reason


async def test_references_of_a_schema_are_read_before_it_and_a_circle_ends() -> None:
    file, plane = flight_file(imports="plane.proto"), plane_file()
    reference = {"name": "plane.proto", "subject": "planes/value", "version": 2}
    answer = {"schema": "text", "schemaType": "PROTOBUF", "references": [reference]}
    registry = SmallRegistry(
        {
            "/schemas/ids/1": answer,
            "/schemas/ids/1?format=serialized": {**answer, "schema": serialized(file)},
            "/subjects/planes%2Fvalue/versions/2": answer,
            "/subjects/planes%2Fvalue/versions/2?format=serialized": {**answer, "schema": serialized(plane)},
        }
    )
    async with registry.serving() as address, client_of(address) as client:
        schema = await client.schema(1)
    assert isinstance(schema, Schema)
    body = protobuf("demo.Flight", plane, file, plane={"tail": "D-AIMA"})
    assert read(framed(1, b"\x00" + body), schema)[0] == b'{"plane": {"tail": "D-AIMA"}}'


def test_avro_schemas_may_refer_to_others() -> None:
    outer = json.dumps({"type": "record", "name": "Trip", "fields": [{"name": "flight", "type": "demo.Flight"}]})
    schema = Schema(1, "AVRO", outer, (("demo.Flight", FLIGHT),))
    value, about = read(framed(1, avro(FLIGHT, RECORD)), schema)
    assert json.loads(value or b"")["flight"]["number"] == 7
    assert about == "value: Avro Trip, schema 1"


def test_a_protobuf_message_of_a_nested_type_is_found_by_its_indexes() -> None:
    schema = Schema(3, "PROTOBUF", serialized(flight_file()))
    body = protobuf("demo.Flight.Seat", flight_file(), row=12)
    expected = (b'{"row": 12}', "value: Protobuf demo.Flight.Seat, schema 3")
    assert read(framed(3, b"\x04\x00\x00" + body), schema) == expected
    for broken in (b"", b"\x04\x00", b"\x04\x00\x08", b"\x7f", b"\xff" * 9, b"\x00\xff"):
        value, about = read(framed(3, broken), schema)
        assert value == framed(3, broken)
        assert about.startswith("value: schema 3: ")


@pytest.mark.parametrize("body", [b"", b"\x0e\x7f", avro(FLIGHT, RECORD) + b"x", b"\xff" * 20])
def test_bytes_that_do_not_have_their_schema_are_shown_or_hidden_with_masking(body: bytes) -> None:
    schema = Schema(1, "AVRO", FLIGHT)
    value, about = read(framed(1, body), schema)
    assert (value, about.startswith("value: schema 1: ")) == (framed(1, body), True)
    hidden = f"••• ({len(body) + 5} bytes, which are not shown with masking)".encode()
    message = Message(0, 0, 0, framed(1, body), framed(1, body), ())
    shown = Values(lambda _: schema, hides=True).read(message)
    assert (shown.key, shown.value) == (hidden, hidden)


def doubled(levels: int) -> str:
    """Return a schema whose value has no bytes, and twice as many parts with each level."""
    kind: object = {"type": "record", "name": "r0", "fields": []}
    for each in range(1, levels):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"r{each - 1}"}]
        kind = {"type": "record", "name": f"r{each}", "fields": fields}
    return json.dumps(kind)


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        ("AVRO", '{"type": "array", "items": "null"}', "a byte of a list becomes more than"),
        ("AVRO", '{"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}', "contains itself"),
        ("AVRO", doubled(40), "more than 10000 values"),
        ("AVRO", '{"type": "array", "items": ' * 60 + '"int"' + "}" * 60, "levels deep"),
        ("AVRO", "[" * 100_000, "the schema is invalid"),
        ("AVRO", '{"type": "unheard of"}', "the schema is invalid"),
        ("PROTOBUF", "message Flight {}", "format=serialized"),
        ("THRIFT", "", "known: AVRO, JSON, PROTOBUF"),
    ],
)
def test_a_schema_that_is_broken_or_without_bounds_is_refused(kind: str, text: str, reason: str) -> None:
    with pytest.raises(CannotDecode, match=reason):
        decoder_of(Schema(1, kind, text))(b"\x02" * 20)


def test_a_schema_of_many_optional_fields_is_within_the_bounds() -> None:
    fields = [{"name": f"f{each}", "type": ["null", "string"]} for each in range(300)]
    items = {"type": "record", "name": "Wide", "fields": fields}
    text = json.dumps({"type": "array", "items": ["null", items]})
    value = [{f"f{each}": None for each in range(300)}, None]
    assert json.loads(decoder_of(Schema(1, "AVRO", text))(avro(text, value)).json) == value


def test_messages_without_a_schema_stay_as_they_are() -> None:
    for value in (b"", b"text", b"\0\0\0\0", b"\1\0\0\0\1x"):
        assert read(value, Missing("not asked for")) == (value, "")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"schema.registry.url": "registry:8081"}, "schema.registry.url=registry:8081; allowed: one address"),
        ({"schema.registry.url": "http://a,http://b"}, "allowed: one address"),
        ({"schema.registry.url": "http://me:secret@a"}, "must have no user"),
        ({"basic.auth.user.info": "me:secret"}, "basic.auth.credentials.source=; allowed: USER_INFO"),
        ({"basic.auth.credentials.source": "URL"}, "basic.auth.credentials.source=URL"),
        ({"schema.registry.ssl.truststore.location": "a.jks"}, "schema.registry.ssl.truststore.type=JKS"),
    ],
)
def test_invalid_settings_of_a_registry_are_refused_without_its_password(given: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidRegistry, match=words) as refused:
        settings_of({"schema.registry.url": "https://registry:8081/", **given})
    assert "secret" not in str(refused.value)
