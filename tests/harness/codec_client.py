"""A connection to one broker that uses the messages and the codec of our broker, which take microseconds a request.

Whether the codec is Kafka's is for the tests with stock clients to say; answers of Apache Kafka are read by it, too.
"""

import select
import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Self

from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.messages import message_class

TIMEOUT_S = 60.0


class Connection:
    """A connection without a login."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(self, api: str, version: int, fields: Mapping[str, Any]) -> Any:
        """Return the response to a request with plain values as its fields (`filled`)."""
        return self.ask(filled(message_class(f"{api}Request"), fields), version)

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request."""
        self.send(request, version)
        return self.receive(type(request).__name__.removesuffix("Request"), version)

    def send(self, request: Any, version: int) -> None:
        """Send a request, whose response must be received before the next request."""
        self.send_frame(encode_request(request, version, 1, "codec-client"))

    def is_answered(self, timeout_s: float) -> bool:
        """True if the response begins to arrive before the timeout."""
        return bool(select.select([self._socket], [], [], timeout_s)[0])

    def receive(self, api: str, version: int) -> Any:
        """Return the response to the request that was sent."""
        name = f"{api}Response"
        frame = self.receive_frame()
        if name == "ApiVersionsResponse":  # Its header never has tagged fields.
            frame = frame[:4] + bytes(API_SPECS[18].is_flexible(version)) + frame[4:]
        return decode_response(name, version, memoryview(frame))

    def fileno(self) -> int:
        """Return the descriptor of the socket, with which selectors wait for a response."""
        return self._socket.fileno()

    def send_frame(self, frame: bytes | bytearray) -> None:
        """Send a framed request."""
        self._socket.sendall(frame)

    def receive_frame(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """Return the next response without its size. Raises OSError if the broker sends none."""
        self._socket.settimeout(timeout_s)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionResetError("closed by the broker")
            got += more
        return bytes(got)


def filled(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Return a message or struct from plain values; nested ones are mappings, and missing fields have defaults."""
    made = kind()
    inner = {each.__name__: each for each in vars(kind).values() if isinstance(each, type)}
    for name, value in values.items():
        assert hasattr(made, name), f"{kind.__name__} has no field {name}"
        setattr(made, name, _filled(inner, value))
    return made


def _filled(inner: Mapping[str, type[Any]], value: Any) -> Any:
    if isinstance(value, list):
        return [_filled(inner, each) for each in value]
    if not isinstance(value, dict):
        return value
    kind = next(each for each in inner.values() if all(hasattr(each, name) for name in value))
    return filled(kind, value)
