"""Authenticate a link to another broker by SASL, before any other request is sent over the link."""

import asyncio
import struct
from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.security.sasl.login import Login, LoginFailed
from barnabas_broker.server.transport import Transport
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode

LOGIN_S: Final = 10.0
FRAME_BYTES_MAX: Final = 64 * 1024
HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 2
CLIENT_ID: Final = "broker"
_SIZE: Final = struct.Struct(">i")


async def authenticate(transport: Transport, login: Login) -> None:
    """Authenticate at the other broker. Raise OSError if the broker refuses or does not answer in time."""
    try:
        async with asyncio.timeout(LOGIN_S):
            await _authenticate(_Exchange(transport), login)
    except (TimeoutError, LoginFailed, MalformedRequest, struct.error) as error:
        reason = str(error) or "no answer in time"
        raise OSError(f"the SASL authentication at the other broker failed: {reason}") from error
    finally:
        transport.ignore_readable()
        transport.ignore_writable()


async def _authenticate(exchange: "_Exchange", login: Login) -> None:
    handshake = message_class("SaslHandshakeRequest")(mechanism=login.mechanism)
    answer = await exchange.ask(handshake, HANDSHAKE_VERSION)
    challenge = b""
    while answer.error_code == ErrorCode.NONE:
        token = login.next_token(challenge)
        if token is None:
            return
        request = message_class("SaslAuthenticateRequest")(auth_bytes=token)
        answer = await exchange.ask(request, AUTHENTICATE_VERSION)
        challenge = bytes(answer.auth_bytes)
    raise LoginFailed(f"the other broker refuses the login with {login.mechanism}: {ErrorCode(answer.error_code).name}")


class _Exchange:
    """The requests over one transport; each request is sent after the response to the previous one."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def ask(self, request: Any, version: int) -> Any:
        """Return the response to a request.

        Raise OSError if the connection fails, or MalformedRequest if the response is malformed.
        """
        frame = memoryview(encode_request(request, version, 0, CLIENT_ID))
        while frame:
            try:
                frame = frame[self._transport.send(frame) :]
            except BlockingIOError:
                await self._until(self._transport.call_when_writable)
                self._transport.ignore_writable()
        (size,) = _SIZE.unpack(await self._exactly(_SIZE.size))
        if not 0 < size <= FRAME_BYTES_MAX:
            raise LoginFailed(f"the response has {size} bytes; 1 to 65536 are allowed")
        name = type(request).__name__.replace("Request", "Response")
        return decode_response(name, version, memoryview(await self._exactly(size)))

    async def _exactly(self, size: int) -> bytearray:
        buffer, have = bytearray(size), 0
        while have < size:
            try:
                received = self._transport.receive(memoryview(buffer)[have:])
            except BlockingIOError:
                await self._until(self._transport.call_when_readable)
                self._transport.ignore_readable()
                continue
            if not received:
                raise ConnectionResetError("the other broker closed the connection")
            have += received
        return buffer

    async def _until(self, call: Callable[[Callable[[], object]], None]) -> None:
        ready = asyncio.Event()
        call(ready.set)
        await ready.wait()
