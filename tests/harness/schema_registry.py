"""A schema registry in a thread, and keys and values that begin with the number of a schema."""

import asyncio
import base64
import io
import json
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from threading import Event, Thread

from aiohttp import web
from fastavro import parse_schema, schemaless_writer
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "demo",
        "fields": [
            {"name": "number", "type": "int"},
            {"name": "card", "type": "string"},
            {"name": "left", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "raw", "type": ["null", "bytes"]},
        ],
    }
)
Answers = Mapping[str, object]
NOT_FOUND = {"error_code": 40401, "message": "Subject not found."}


def framed(schema_id: int, body: bytes) -> bytes:
    """Return content with the number of its schema before it."""
    return struct.pack(">bI", 0, schema_id) + body


def avro(schema: str, value: object) -> bytes:
    """Return a value in Avro."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(json.loads(schema)), value)
    return out.getvalue()


def flight_file(*, imports: str = "") -> FileDescriptorProto:
    """Return a file with the message Flight, which has a message Seat in it, and a time."""
    file = FileDescriptorProto(name="flight.proto", package="demo", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    flight = file.message_type.add(name="Flight")
    kinds = FieldDescriptorProto
    flight.field.add(name="flight_number", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    time = ".google.protobuf.Timestamp"
    flight.field.add(name="left", number=2, type=kinds.TYPE_MESSAGE, type_name=time, label=kinds.LABEL_OPTIONAL)
    seat = flight.nested_type.add(name="Seat")
    seat.field.add(name="row", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    if imports:
        file.dependency.append(imports)
        kind = ".demo.Plane"
        flight.field.add(name="plane", number=3, type=kinds.TYPE_MESSAGE, type_name=kind, label=kinds.LABEL_OPTIONAL)
    return file


def plane_file() -> FileDescriptorProto:
    """Return a file with the message Plane."""
    file = FileDescriptorProto(name="plane.proto", package="demo", syntax="proto3")
    kinds = FieldDescriptorProto
    file.message_type.add(name="Plane").field.add(
        name="tail", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
    )
    return file


def serialized(file: FileDescriptorProto) -> str:
    """Return a file as a registry gives it."""
    return base64.b64encode(file.SerializeToString()).decode()


def protobuf(name: str, *files: FileDescriptorProto, **fields: object) -> bytes:
    """Return a message of the type of this name in Protobuf, without indexes."""
    pool = DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for each in files:
        pool.AddSerializedFile(each.SerializeToString())
    return bytes(GetMessageClass(pool.FindMessageTypeByName(name))(**fields).SerializeToString())


class SmallRegistry:
    """A registry on a free port: an answer for each path with its query, otherwise 404."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.headers: list[Mapping[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request."""
        self.asked.append(request.path_qs)
        self.headers.append(request.headers)
        found = self.answers.get(request.raw_path)
        if isinstance(found, web.Response):
            return web.Response(status=found.status, body=found.body, headers=found.headers)  # Each is sent once.
        return web.json_response(NOT_FOUND if found is None else found, status=404 if found is None else 200)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve while the block runs; yield the address."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


@contextmanager
def in_a_thread(registry: SmallRegistry) -> Iterator[str]:
    """Serve a registry while the block runs; yield its address."""
    loop, started = asyncio.new_event_loop(), Event()
    stop, addresses = asyncio.Event(), list[str]()

    async def serve() -> None:
        async with registry.serving() as address:
            addresses.append(address)
            started.set()
            await stop.wait()

    thread = Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(30)
        yield addresses[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
