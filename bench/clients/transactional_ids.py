"""Transactional ids by raw requests: many of them are made, one is requested, all are counted."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

from bench import raw_requests
from bench.clients.job import NotRun

CONNECTIONS: Final = 16
"""Both brokers serve one request of a connection at a time."""
ANSWER_SECONDS_MAX: Final = 60.0
TIMEOUT_MS: Final = 60_000
COORDINATOR_SECONDS_MAX: Final = 60.0
PAUSE_S: Final = 0.01


def transactional_id(number: int) -> str:
    """Return the id with that number."""
    return f"id-{number}"


def make_ids(port: int, count: int, seconds_max: float) -> None:
    """Make the ids 0 to `count` - 1, each with its own producer id. Raises NotRun."""
    await_id(port, transactional_id(0), COORDINATOR_SECONDS_MAX)
    deadline = time.monotonic() + seconds_max
    with _connections(port) as connections:
        for first in range(1, count, CONNECTIONS):
            if time.monotonic() > deadline:
                raise NotRun(f"{seconds_max:.0f} s were too short for {count} ids")
            names = [transactional_id(number) for number in range(first, min(first + CONNECTIONS, count))]
            for name in _refused(connections, names):
                await_id(port, name, COORDINATOR_SECONDS_MAX)


def _refused(connections: list[socket.socket], names: list[str]) -> list[str]:
    """Request each id over its own connection; return those that a coordinator does not serve yet."""
    used = list(zip(connections, names, strict=False))
    for connection, name in used:
        connection.sendall(raw_requests.init_producer_request(name, TIMEOUT_MS))
    return [name for connection, name in used if raw_requests.init_producer_error(raw_requests.receive(connection))]


@contextmanager
def _connections(port: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as opened:
        yield [opened.enter_context(_connection(port)) for _ in range(CONNECTIONS)]


def _connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS_MAX)


def await_id(port: int, name: str, seconds_max: float) -> float:
    """Return the monotonic time at which the coordinator served that id; it is made if need be. Raises NotRun."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        with suppress(OSError), _connection(port) as connection:
            connection.sendall(raw_requests.coordinator_request(name, kind=raw_requests.TRANSACTION))
            raw_requests.receive(connection)
            connection.sendall(raw_requests.init_producer_request(name, TIMEOUT_MS))
            if raw_requests.init_producer_error(raw_requests.receive(connection)) == 0:
                return time.monotonic()
        time.sleep(PAUSE_S)
    raise NotRun(f"no coordinator served the id {name} within {seconds_max:.0f} s")


def count_ids(port: int) -> int | None:
    """Return how many ids ListTransactions names, None while a coordinator loads or the broker does not answer."""
    try:
        with _connection(port) as connection:
            connection.sendall(raw_requests.list_transactions_request())
            return raw_requests.listed_transactions(raw_requests.receive(connection))
    except OSError:
        return None
