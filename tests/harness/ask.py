"""Sends one request to one broker, without a client that would choose another broker, retry or remember."""

import itertools
import socket
import struct
from typing import Any

TIMEOUT_SECONDS = 30.0
CLIENT_ID = "harness"

_numbers = itertools.count(1)


def ask(
    port: int, request: Any, version: int, timeout_seconds: float = TIMEOUT_SECONDS, host: str = "127.0.0.1"
) -> Any:
    """Send a request of `kafka.protocol` and return its response. Raises OSError if the broker does not answer.

    >>> ask(port, MetadataRequest(topics=None), version=12).brokers
    """
    with socket.create_connection((host, port), timeout=timeout_seconds) as connection:
        return ask_on(connection, request, version)


def ask_on(connection: socket.socket, request: Any, version: int) -> Any:
    """Do the same on a connection that stays open."""
    request.API_VERSION = version
    request.with_header(correlation_id=next(_numbers), client_id=CLIENT_ID)
    connection.sendall(request.encode(header=True, framed=True))
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    answer = _exactly(connection, size)
    return request.header.get_response_class().decode(answer, header=True)


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionResetError("closed by the broker")
        got += more
    return bytes(got)
