"""A group that commits its offsets repeatedly: raw requests on several connections, without a client's pauses."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from bench import raw_requests
from bench.clients.job import NotRun

CONNECTIONS: Final = 4
"""Apache Kafka serves one request of a connection at a time."""
ROUNDS_BETWEEN_LOOKS: Final = 50
COORDINATOR_SECONDS_MAX: Final = 60.0
PAUSE_S: Final = 0.1
ANSWER_SECONDS_MAX: Final = 30.0


def commit_until(
    port: int,
    group: str,
    topic: str,
    partitions: int,
    is_enough: Callable[[], bool],
    seconds_max: float,
    coordinator_seconds_max: float = COORDINATOR_SECONDS_MAX,
) -> None:
    """Commit an offset of each partition repeatedly, until `is_enough`, which is asked now and then. Raises NotRun."""
    _await_coordinator(port, group, topic, partitions, coordinator_seconds_max)
    deadline = time.monotonic() + seconds_max
    offset = 0
    with _connections(port) as connections:
        while not is_enough():
            if time.monotonic() > deadline:
                raise NotRun(f"{seconds_max:.0f} s were too short for the commits")
            for _ in range(ROUNDS_BETWEEN_LOOKS):
                offset += 1
                _one_round(connections, raw_requests.commit_request(group, topic, partitions, offset))


@contextmanager
def _connections(port: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        addresses = [("127.0.0.1", port)] * CONNECTIONS
        yield [opened.enter_context(socket.create_connection(each, timeout=ANSWER_SECONDS_MAX)) for each in addresses]


def _one_round(connections: list[socket.socket], request: bytes) -> None:
    for connection in connections:
        connection.sendall(request)
    for connection in connections:
        error = raw_requests.commit_error(raw_requests.receive(connection))
        if error:
            raise NotRun(f"a commit was refused with error code {error}")


def _await_coordinator(port: int, group: str, topic: str, partitions: int, seconds_max: float) -> None:
    """Ask for the coordinator, which makes `__consumer_offsets`, until the first commit is accepted."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX) as connection,
        ):
            for request in (
                raw_requests.coordinator_request(group),
                raw_requests.commit_request(group, topic, partitions, 0),
            ):
                connection.sendall(request)
                answer = raw_requests.receive(connection)
            if raw_requests.commit_error(answer) == 0:
                return
        time.sleep(PAUSE_S)
    raise NotRun(f"no coordinator took a commit within {seconds_max:.0f} s")
