"""Raw Produce requests of one connection that always has several in flight, as producers do by default."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from bench.bytecodes import produce_of
from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.processes import cpu_seconds
from bench.scenarios.stand import Stand
from bench.topics import topic

RECEIVE_BYTES: Final = 64 * 1024
LEADS_S_MAX: Final = 5.0
"""The seconds that a broker may take to lead the partition that its metadata names."""
WARM_UP: Final = 2_000
"""Requests before any is counted."""


@dataclass(frozen=True, slots=True)
class ProduceInFlight:
    """One batch of 16 KiB by Produce v13 with acks=1, repeatedly; `in_flight` requests are unanswered."""

    in_flight: int
    topic: str = "in-flight"

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return requests a second, and the broker's CPU time for a request."""
        server = stand.brokers.standing(peer)
        with topic(server.bootstrap, self.topic, 1), _connected(server.port) as connection:
            frame = produce_of(_topic_id(server.bootstrap, self.topic), acks=1)
            size = _answer_bytes(connection, frame)
            _pump(connection, frame, size, self.in_flight, requests=WARM_UP)
            began_s, cpu_s = time.monotonic(), cpu_seconds(server.pid)
            answered = _pump(connection, frame, size, self.in_flight, until_s=began_s + stand.limits.run_s)
            cpu_s, took_s = cpu_seconds(server.pid) - cpu_s, time.monotonic() - began_s
        return {"requests_per_s": answered / took_s, "cpu_us_per_request": cpu_s / answered * 1e6}


@contextmanager
def _connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def _topic_id(bootstrap: str, name: str) -> UUID:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # If it were deleted, the request would be cancelled.
    found = admin.describe_topics(TopicCollection([name]))[name].result(10).topic_id
    return UUID(int=(found.get_most_significant_bits() % 2**64 << 64) | found.get_least_significant_bits() % 2**64)


def _answer_bytes(connection: socket.socket, frame: bytes) -> int:
    """Return the size of a response with its size field, once the request is accepted. Raises NotRun if it never is."""
    deadline = time.monotonic() + LEADS_S_MAX
    while True:
        connection.sendall(frame)
        answer = connection.recv(RECEIVE_BYTES)
        # The error code follows size, correlation id, tags, one topic with its id, and one partition with its index.
        size, error = struct.unpack_from(">i31xh", answer)
        if not error:
            return int(size) + 4
        if time.monotonic() > deadline:
            raise NotRun(f"Produce v13 was refused with error {error} for {LEADS_S_MAX} s")


def _pump(
    connection: socket.socket, frame: bytes, size: int, in_flight: int, *, requests: int = 0, until_s: float = 0.0
) -> int:
    """Keep `in_flight` requests unanswered, for a number of requests or until a time; return how many were answered."""
    sent = received_bytes = 0
    while received_bytes // size < requests or time.monotonic() < until_s:
        while sent - received_bytes // size < in_flight:
            connection.sendall(frame)
            sent += 1
        received_bytes += len(connection.recv(RECEIVE_BYTES))
    answered = received_bytes // size
    while received_bytes < sent * size:
        received_bytes += len(connection.recv(RECEIVE_BYTES))
    return answered
