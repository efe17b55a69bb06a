"""The connections to other brokers, over which followers fetch (`replication.links`).

Responses are received into one buffer and are not copied. The buffer grows to the largest response, and is reused when
no memoryview of it is left.
"""

import asyncio
import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from barnabas_broker.security.sasl.listener_mechanisms import Login, LoginFailed
from barnabas_broker.server.tls_stream import TlsStream, TlsTransport
from barnabas_broker.server.transport import PlainTransport, Transport, connect
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import RECEIVED_BYTES

LOGIN_S: Final = 10.0
REFUSAL_S: Final = 1.0
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


log = logging.getLogger(__name__)

SIZE_BYTES: Final = 4
FIRST_BUFFER_BYTES: Final = 64 * 1024
SMALL_UNTIL_SHRUNK: Final = 256
"""The number of small responses in a row after which a large buffer is replaced by one of FIRST_BUFFER_BYTES."""
RESPONSE_BYTES_MAX: Final = 2**30
HANDSHAKE_S_MAX: Final = 10.0

TlsContext = Callable[[], ssl.SSLContext | None]
"""A function that returns the TLS context for a new link; None if brokers connect without TLS."""
OnResponse = Callable[[memoryview], None]
OnClosed = Callable[[str], None]


class PeerLinks:
    """The factory of links; `address_of` returns the host and port of a broker, or None if its address is unknown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        address_of: Callable[[int], tuple[str, int] | None],
        tls: TlsContext = lambda: None,
        login: Callable[[], Login] | None = None,
    ) -> None:
        """Create the factory; `login` creates the SASL login of a link, and is None if brokers connect without SASL."""
        self._loop = loop
        self._address_of = address_of
        self._tls = tls
        self._login = login

    def open(self, broker_id: int, on_closed: OnClosed) -> "PeerLink":
        """Return a link that connects to the broker's current address."""
        return PeerLink(self._loop, broker_id, self._address_of(broker_id), on_closed, self._tls(), self._login)

    async def refuses(self, broker_id: int) -> bool:
        """True if no process listens at the broker's current address; False if nobody answers within REFUSAL_S."""
        address = self._address_of(broker_id)
        if address is None:
            return False
        try:
            async with asyncio.timeout(REFUSAL_S):
                made = await connect(self._loop, address)
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
        made.close()
        return False


class PeerLink:
    """A connection to one broker; a broken link is closed and never reconnects."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        broker_id: int,
        address: tuple[str, int] | None,
        on_closed: OnClosed,
        tls: ssl.SSLContext | None = None,
        login: Callable[[], Login] | None = None,
    ) -> None:
        self._login = login
        self._loop = loop
        self._tls = tls
        self._broker_id = broker_id
        self._on_closed: OnClosed | None = on_closed
        self._transport: Transport | None = None
        self._waiting: deque[OnResponse] = deque()
        self._unsent = bytearray()
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._have = 0
        self._spare: bytearray | None = None
        self._small_in_a_row = 0
        self._connecting = loop.create_task(self._connect(address))

    def send(self, frame: bytes | bytearray, on_response: OnResponse) -> None:
        """Send a request, or queue it while the link is not connected or its socket is full.

        `on_response` gets the response, and is not called if the link closes first.
        """
        self._waiting.append(on_response)
        sent = 0
        if self._transport is not None and not self._unsent:
            try:
                sent = self._transport.send(frame)
            except BlockingIOError:
                pass
            except OSError as error:
                self._loop.call_soon(self._break, f"cannot send: {error}")
                return
            if sent == len(frame):
                return
            self._transport.call_when_writable(self._writable)
        self._unsent += frame[sent:]

    def close(self) -> None:
        """Close the link; no callback is called after that."""
        self._on_closed = None
        self._waiting.clear()
        self._connecting.cancel()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def _connect(self, address: tuple[str, int] | None) -> None:
        try:
            if address is None:
                raise OSError(f"broker {self._broker_id} has registered no address for the inter-broker listener")
            self._transport = await self._open(address)
        except OSError as error:
            self._break(f"cannot connect: {error}")
            return
        self._transport.call_when_readable(self._readable)
        self._writable()

    async def _open(self, address: tuple[str, int]) -> Transport:
        """Return a transport that is connected and authenticated.

        Raise OSError if the broker refuses or does not answer.
        """
        connected = await connect(self._loop, address)
        transport: Transport
        if self._tls is None:
            transport = PlainTransport(self._loop, connected)
        else:
            transport = await _shake_hands(self._loop, connected, self._tls, address[0])
        if self._login is not None:
            try:
                await authenticate(transport, self._login())
            except BaseException:
                transport.close()
                raise
        return transport

    def _break(self, reason: str) -> None:
        on_closed = self._on_closed
        self.close()
        if on_closed is not None:
            on_closed(reason)

    def _writable(self) -> None:
        """Send the queued requests; when the socket is full, send the remaining bytes later."""
        if self._transport is None or not self._unsent:
            return
        try:
            sent = self._transport.send(self._unsent)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._break(f"cannot send: {error}")
            return
        if sent == len(self._unsent):
            self._unsent = bytearray()
            self._transport.ignore_writable()
        else:
            del self._unsent[:sent]
            self._transport.call_when_writable(self._writable)

    def _readable(self) -> None:
        assert self._transport is not None
        try:
            received = self._transport.receive(memoryview(self._buffer)[self._have : self._have + RECEIVED_BYTES])
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not received:
            self._break("the other broker closed the connection")
            return
        self._have += received
        try:
            self._take_responses()
        except Exception:
            log.exception("bug in the handling of a response of broker %d", self._broker_id)
            self._break("the handling of a response failed with an unexpected error")

    def _take_responses(self) -> None:
        """Pass complete responses to their callbacks; move an incomplete response to the front of a buffer."""
        position, have, buffer = 0, self._have, self._buffer
        needed = SIZE_BYTES
        while have - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 0 < size <= RESPONSE_BYTES_MAX or not self._waiting:
                self._break(
                    f"a frame of {size} bytes is not a valid response; {len(self._waiting)} requests have no response"
                )
                return
            needed = SIZE_BYTES + size
            if have - position < needed:
                break
            self._waiting.popleft()(memoryview(buffer)[position + SIZE_BYTES : position + needed])
            if self._transport is None:
                return
            self._small_in_a_row = self._small_in_a_row + 1 if needed <= FIRST_BUFFER_BYTES else 0
            position += needed
            needed = SIZE_BYTES
        if needed > len(buffer) or (position and _is_held(buffer)):
            self._buffer = self._another_buffer(needed)
        elif not position:
            return
        elif self._small_in_a_row >= SMALL_UNTIL_SHRUNK and needed <= FIRST_BUFFER_BYTES:
            self._buffer, self._spare = bytearray(FIRST_BUFFER_BYTES), None
        self._have = rest = have - position
        if rest:
            self._buffer[:rest] = bytes(memoryview(buffer)[position:have])

    def _another_buffer(self, needed: int) -> bytearray:
        """Return the spare buffer if it is free and large enough, or a new one; make the current buffer the spare."""
        spare, self._spare = self._spare, self._buffer
        if spare is not None and len(spare) >= needed and not _is_held(spare):
            return spare
        return bytearray(max(1 << (needed - 1).bit_length(), FIRST_BUFFER_BYTES))


def _is_held(buffer: bytearray) -> bool:
    """True if a memoryview of the buffer exists, so that the buffer cannot be resized."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return True
    return False


async def _shake_hands(
    loop: asyncio.AbstractEventLoop, connected: socket.socket, context: ssl.SSLContext, host: str
) -> TlsTransport:
    """Return the transport after the handshake. Raise OSError if the handshake fails or takes too long."""
    tls = TlsStream(connected, context, server_hostname=host)
    try:
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            while not await _step(loop, tls):
                pass
    except BaseException:
        tls.close()
        raise
    return TlsTransport(loop, tls)


async def _step(loop: asyncio.AbstractEventLoop, tls: TlsStream) -> bool:
    """Continue the handshake; return True at its end, or False once the socket is ready for the next step."""
    try:
        tls.shake_hands()
    except ssl.SSLWantReadError:
        listen, ignore = loop.add_reader, loop.remove_reader
    except ssl.SSLWantWriteError:
        listen, ignore = loop.add_writer, loop.remove_writer
    else:
        return True
    is_ready = asyncio.Event()
    listen(tls.fileno(), is_ready.set)
    try:
        await is_ready.wait()
    finally:
        ignore(tls.fileno())
    return False
