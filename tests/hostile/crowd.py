"""Clients that begin TLS handshakes and SASL dialogues, and stop at some step."""

import itertools
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

from barnabas_broker.wire.encoder import encode_request
from barnabas_broker.wire.messages import message_class
from rights.servers import SASL_PLAINTEXT, SASL_SSL, Server

ADDRESSES = 50
"""Each address has its own ports."""
CONNECT_S_MAX = 60.0
LARGEST_FRAME = struct.pack(">i", 64 * 1024)


def _hello(length: int | None) -> bytes:
    """Return the beginning of a TLS client's first message."""
    out = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return out.read()[:length]


def _handshake() -> bytes:
    return bytes(encode_request(message_class("SaslHandshakeRequest")(mechanism="PLAIN"), 1, 1, "crowd"))


STEPS: tuple[tuple[str, Callable[[], bytes]], ...] = (
    (SASL_SSL, lambda: b""),
    (SASL_PLAINTEXT, lambda: b""),
    (SASL_SSL, lambda: _hello(20)),
    (SASL_PLAINTEXT, lambda: LARGEST_FRAME + bytes(16)),
    (SASL_SSL, lambda: _hello(None)),
    (SASL_PLAINTEXT, _handshake),
)
"""The steps after which a client sends nothing more."""


def stalled(server: Server) -> Iterator[socket.socket]:
    """Yield connections without end, each stopped at its step."""
    said = [(server.ports[listener], text()) for listener, text in STEPS]
    for number, (port, text) in zip(itertools.count(), itertools.cycle(said)):
        source = (f"127.0.1.{number % ADDRESSES + 1}", 0)
        connection = socket.create_connection(("127.0.0.1", port), CONNECT_S_MAX, source)
        with suppress(OSError):  # The broker may close it for another client.
            connection.sendall(text)
        yield connection
