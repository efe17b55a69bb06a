"""Ten thousand clients that send or read as slowly as they can beside a producer and a consumer that do their work."""

import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from faulty_broker import FaultyBroker
from started_brokers import StartBroker

from harness.barnabas_server import resident_bytes
from harness.deadline import wait_for
from harness.require import require
from harness.soak import took

CONNECTIONS = 10_000
RECORDS = 2_000
GROWTH_BYTES_MAX = 400 * 1024 * 1024
"""Of the broker's memory: 5 KB a connection, up to 160 MiB of requests, up to 256 MiB of unsent answers."""
ALL_TOPICS = struct.pack(">ihhih4si", 18, 3, 1, 7, 4, b"slow", -1)
PARTITIONS_TOLD = 1_000
A_TENTH = struct.pack(">i", 1_000_000) + bytes(100_000)


@contextmanager
def many_sockets(port: int) -> Iterator[list[socket.socket]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = CONNECTIONS + 500
    enough = hard == resource.RLIM_INFINITY or hard >= needed
    require(enough, f"the machine allows {hard} open files, {needed} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30)) for _ in range(CONNECTIONS)
        ]


def send_what_goes(connection: socket.socket, data: bytes) -> None:
    connection.setblocking(False)
    with suppress(BlockingIOError, ConnectionError):
        connection.send(data)


def five_bytes(connections: list[socket.socket]) -> None:
    for connection in connections:
        send_what_goes(connection, struct.pack(">i", 1_000) + b"x")


def a_tenth_of_a_request(connections: list[socket.socket]) -> None:
    for connection in connections:
        send_what_goes(connection, A_TENTH)


def questions_whose_answers_are_not_read(connections: list[socket.socket]) -> None:
    """Not from all of them: the system would hold megabytes for each."""
    for connection in connections[:100]:
        send_what_goes(connection, ALL_TOPICS * 200)


def work(broker: FaultyBroker, topic: str) -> float:
    """How long a producer and a consumer of librdkafka take for their records."""
    began_s = time.monotonic()
    values = [b"%06d" % number * 100 for number in range(RECORDS)]
    broker.client.write(topic, values)
    # Not idempotent: batches that were refused while the new topic's log was made come behind later ones.
    assert sorted(broker.client.read(topic)) == values
    return time.monotonic() - began_s


@pytest.mark.soak(only=True)
@pytest.mark.parametrize("misbehave", [five_bytes, a_tenth_of_a_request, questions_whose_answers_are_not_read])
def test_slow_clients_neither_stop_the_others_nor_fill_the_memory(
    start_broker: StartBroker, misbehave: Callable[[list[socket.socket]], None]
) -> None:
    broker = start_broker()
    broker.client.create_topic("told", PARTITIONS_TOLD)
    broker.client.create_topic("before")
    broker.client.create_topic("beside")
    alone_s = work(broker, "before")
    with many_sockets(broker.server.port) as connections:
        had = resident_bytes(broker.server.pid)
        misbehave(connections)
        beside_s = work(broker, "beside")
        grown = resident_bytes(broker.server.pid) - had
        print(f"{misbehave.__name__}: {alone_s:.2f} s alone, {beside_s:.2f} s beside; {grown / 2**20:.0f} MiB more")
        assert grown < GROWTH_BYTES_MAX
        took(f"a client beside {misbehave.__name__}", beside_s, 10 * alone_s + 5)


@pytest.mark.soak(only=True)
def test_a_byte_a_second_is_closed_in_less_than_a_minute(start_broker: StartBroker) -> None:
    broker = start_broker()
    deadline_s = time.monotonic() + 60
    with socket.create_connection(("127.0.0.1", broker.server.port), timeout=30) as slow:
        slow.sendall(struct.pack(">i", 1_000))
        slow.settimeout(1.0)
        while True:
            assert time.monotonic() < deadline_s
            try:
                slow.send(b"x")
                if not slow.recv(1):
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
    wait_for(lambda: "came in too slowly" in broker.server.log_text())
