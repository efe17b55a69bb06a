"""Thousands of clients at once (F51)."""

import resource
import socket
import struct
from contextlib import ExitStack

import pytest

from drivers.interface import Message
from drivers.librdkafka import LibrdkafkaClient
from harness.require import require
from harness.server_process import ServerProcess

CONNECTIONS = 5_000
# ApiVersions v0, correlation id 7, client id "idle".
API_VERSIONS = struct.pack(">ihhih4s", 14, 18, 0, 7, 4, b"idle")


def ask_versions(connection: socket.socket) -> tuple[int, int]:
    """Correlation id and error code of the answer."""
    connection.sendall(API_VERSIONS)
    data = b""
    while len(data) < 10:
        part = connection.recv(65_536)
        assert part, "the broker closed the connection"
        data += part
    _, correlation_id, error_code = struct.unpack_from(">iih", data)
    return correlation_id, error_code


@pytest.mark.slow
def test_five_thousand_idle_connections_are_held_beside_the_work(
    broker: ServerProcess, librdkafka: LibrdkafkaClient, topic: str
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 500
    enough = hard == resource.RLIM_INFINITY or hard >= needed
    require(enough, f"the machine allows {hard} open files, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=30))
            for _ in range(CONNECTIONS)
        ]
        librdkafka.create_topic(topic, 1, {})
        librdkafka.produce(topic, [Message(b"v")] * 1_000)
        assert len(librdkafka.read(topic, 1_000)) == 1_000
        for connection in connections:
            assert ask_versions(connection) == (7, 0)
