"""A connection of one user over SASL_PLAINTEXT or SASL_SSL; requests and responses use our codec's definitions."""

import socket
import ssl
import struct
from typing import Any, Self

from barnabas_broker.wire.apis import API_SPECS
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.messages import message_class

TIMEOUT_S = 60.0
PASSWORD = "secret"


class Client:
    """A connection that has authenticated by PLAIN."""

    def __init__(self, port: int, user: str, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        self.ask(message_class("SaslHandshakeRequest")(mechanism="PLAIN"), 1)
        token = f"\0{user}\0{PASSWORD}".encode()
        answer = self.ask(message_class("SaslAuthenticateRequest")(auth_bytes=token), 2)
        assert answer.error_code == 0, answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request."""
        self._socket.sendall(encode_request(request, version, 1, "rights"))
        (size,) = struct.unpack(">i", self._exactly(4))
        name = type(request).__name__.replace("Request", "Response")
        frame = self._exactly(size)
        if name == "ApiVersionsResponse":  # Its header never has tagged fields.
            frame = frame[:4] + bytes(API_SPECS[18].is_flexible(version)) + frame[4:]
        return decode_response(name, version, memoryview(frame))

    def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            more = self._socket.recv(size - len(got))
            if not more:
                raise ConnectionResetError("closed by the broker")
            got += more
        return bytes(got)
