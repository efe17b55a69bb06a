"""The client libraries whose transactional producers take part."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from drivers.builds import go_driver, java_driver
from drivers.interface import Writer
from drivers.librdkafka_writer import LibrdkafkaWriter
from drivers.remote import RemoteClient, RemoteError
from harness.stock_client import RECONNECTS

Open = Callable[[str], Writer]
"""A function that makes a producer with a transactional id."""
TIMEOUT_MS: Final = 6_000
"""The timeout of a transaction that was left open."""
QUIET: Final = logging.Logger("librdkafka")
"""A logger without output: a fenced producer logs at any log level."""
QUIET.addHandler(logging.NullHandler())
# Requests to a hanging broker time out soon, so that requests with unknown outcomes are repeated.
LIBRDKAFKA: Final = {
    **RECONNECTS,
    "logger": QUIET,
    "transaction.timeout.ms": TIMEOUT_MS,
    "socket.timeout.ms": 5_000,
    "request.timeout.ms": 4_000,
}
JAVA: Final = {
    "transaction.timeout.ms": str(TIMEOUT_MS),
    "request.timeout.ms": "4000",
    "delivery.timeout.ms": "5500",
    "linger.ms": "5",
}
FAILURES: Final = (KafkaException, RemoteError, BufferError, AssertionError)


class Library(NamedTuple):
    """The functions that open producers of a library, and end it."""

    open: Open
    close: Callable[[], object]
    can_leave: bool = True
    """False if a transaction that was left open would hold back readers for longer than TIMEOUT_MS."""


def _librdkafka(bootstrap: str, _: Path) -> Library:
    settings = {**LIBRDKAFKA, "bootstrap.servers": bootstrap}
    return Library(lambda name: LibrdkafkaWriter(settings, name), lambda: None)


def _java(bootstrap: str, log_path: Path) -> Library:
    client = RemoteClient("java", java_driver(bootstrap), log_path)
    return Library(lambda name: client.writer(name, config=JAVA), client.close)


def _franz_go(bootstrap: str, log_path: Path) -> Library:
    one_broker = bootstrap.partition(",")[0]  # It learns the others from this one.
    client = RemoteClient("franz-go", go_driver(one_broker), log_path)
    return Library(client.writer, client.close, can_leave=False)


LIBRARIES: Final[Mapping[str, Callable[[str, Path], Library]]] = {
    "librdkafka": _librdkafka,
    "java": _java,
    "franz-go": _franz_go,
}
