"""Serve /metrics, the health pages and the operator's webhook over HTTP or HTTPS, with h11 for the protocol.

TLS runs over buffers in memory instead of asyncio's TLS, so that the connection's task also runs the handshake. The
task's deadline then covers the handshake, and the connection counts as open from its first byte on.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from barnabas_web.visitors import CONNECTION_BYTES, Limits, Protection, Turns, Visitors, address_of

READ_BYTES: Final = 16 * 1024


class PlainChannel:
    """A connection without TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> bytes:
        """Return the next bytes, which are empty at the end of the stream."""
        return await self._reader.read(READ_BYTES)

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while the other side does not read."""
        self._writer.write(data)
        await self._writer.drain()

    def close(self, last: bytes = b"") -> None:
        """Send the last bytes, and close the connection once everything is sent."""
        self._writer.write(last)
        self._writer.close()


class TlsChannel:
    """A connection over TLS, after `shake_hands`."""

    def __init__(self, plain: PlainChannel, context: ssl.SSLContext) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def shake_hands(self, turn: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Finish the handshake. Raises ssl.SSLError.

        One `turn` of all handshakes is held at a time, so that each turn of the event loop runs one step of one
        handshake.
        """
        while True:
            try:
                async with turn():
                    await asyncio.sleep(0)
                    self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLError:
                await self._flush()  # Send the TLS alert, which has the reason of the failure.
                raise
            else:
                return await self._flush()

    async def receive(self) -> bytes:
        """Return the next bytes, which are empty at the end of the stream. Raises ssl.SSLError."""
        while True:
            try:
                return self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            except ssl.SSLZeroReturnError:
                return b""

    async def send(self, data: bytes) -> None:
        """Send bytes, and wait while the other side does not read."""
        if data:
            self._tls.write(data)
        await self._flush()

    def close(self) -> None:
        """Close the connection with a close_notify, without waiting for the other side's close_notify."""
        with suppress(ssl.SSLError):
            self._tls.unwrap()
        self._plain.close(self._outgoing.read())

    async def _fill(self) -> None:
        data = await self._plain.receive()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        await self._plain.send(self._outgoing.read())


Channel = PlainChannel | TlsChannel


log = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""The connections that wait in the kernel. If they were few, a flood would keep other clients from connecting."""
ACCEPTS_MAX: Final = 64
"""The connections that one turn of the event loop accepts."""
PAUSE_S: Final = 0.1
"""The pause after the system could not accept a connection, for example because all descriptors are in use."""


class Listening:
    """The sockets of a port; `accepted` gets each connection and the host of its client."""

    def __init__(self, accepted: Callable[[socket.socket, str], None]) -> None:
        self._accepted = accepted
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; the system chooses a port if `port` is 0.

        An empty host means all addresses of IPv4 and IPv6. Raise OSError if the address is taken or invalid.
        """
        loop = asyncio.get_running_loop()
        try:
            bound = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
        except UnicodeError as error:  # The host name is invalid: a label is empty or too long.
            raise OSError(f"{host} is not a host name: {error}") from error
        self._sockets = [each.dup() for each in bound.sockets]
        bound.close()
        for each in self._sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            loop.add_reader(each, self._accept, each)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("the HTTP listener cannot accept a connection: %s", error)
                asyncio.get_running_loop().remove_reader(listening)
                asyncio.get_running_loop().call_later(PAUSE_S, self._resume, listening)
                return
            connection.setblocking(False)
            self._accepted(connection, address[0])

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)


CONNECTIONS_MAX: Final = 32
"""The maximum number of open connections; segment files and Kafka clients leave only few file descriptors."""
OF_PAGES: Final = Limits(CONNECTIONS_MAX * CONNECTION_BYTES, rate=50)
WRITE_BYTES: Final = 64 * 1024
REQUEST_S_MAX: Final = 10.0
"""The seconds for the handshake and the arrival of the request, after which the connection is closed."""
ANSWER_S_MAX: Final = 60.0
"""The seconds for the client to read the response, after which the connection is closed."""
REFRESH_S: Final = 5.0
"""The interval in seconds at which the files of the certificate and the token are checked for changes."""


END_S: Final = 0.01
"""The interval in seconds at which `stop` looks for open connections."""


class Page(NamedTuple):
    """The HTTP response for a path: status, content type and body."""

    status: HTTPStatus
    content_type: str
    body: bytes | AsyncIterator[bytes]
    """The bytes of the page; a long page is an iterator of slices, so that only one slice is in memory."""
    headers: tuple[tuple[str, str], ...] = ()


PageMaker = Callable[[], Awaitable[Page]]


class Received(NamedTuple):
    """The body of a POST, and the address of its client as `address_of` returns it."""

    body: bytes
    address: str


class Posts(NamedTuple):
    """A path that takes POST requests; longer bodies are answered with 413."""

    answer: Callable[[Received], Awaitable[Page]]
    bytes_max: int


def text_page(status: HTTPStatus, text: str) -> Page:
    """Return a page of plain text."""
    return Page(status, "text/plain; charset=utf-8", text.encode())


class _Client:
    """One connection."""

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection = connection
        self.address = address
        self.writer: asyncio.StreamWriter | None = None
        self.is_ended = False

    def end(self) -> None:
        """Abort the connection, without waiting for its task."""
        self.is_ended = True
        if self.writer is not None:
            self.writer.transport.abort()


class HttpServer:
    """Serve a fixed set of pages to GET and HEAD; answer other paths with 404 and other methods with 405.

    `posts` are the paths that take POST instead. `Visitors` says which connections end for others, so that a probe of
    an address that connects rarely is answered whatever other addresses do. If the port has a token, a request
    without the token gets 401, unless its path is in `probes`.
    """

    def __init__(
        self,
        pages: Mapping[str, PageMaker],
        probes: Collection[str] = (),
        protection: Protection | None = None,
        *,
        posts: Mapping[str, Posts] | None = None,
        limits: Limits = OF_PAGES,
    ) -> None:
        self._pages = pages
        self._posts = posts or {}
        self._probes = probes
        self._protection = protection or Protection()
        self._handshakes = Turns()
        self._following: asyncio.Task[None] | None = None
        self._listening = Listening(self._enter)
        self._visitors: Visitors[_Client] = Visitors(limits)
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; the system chooses a port if `port` is 0.

        From now on, a changed certificate or token is used. Raise OSError if the address is taken, or the host name is
        invalid.
        """
        bound = await self._listening.start(host, port)
        if self._protection:
            self._following = asyncio.create_task(self._follow())
        return bound

    def close(self) -> None:
        """Stop listening, and abort all connections, without waiting for their tasks."""
        self._listening.close()
        if self._following is not None:
            self._following.cancel()
        for client in self._visitors:
            client.end()

    async def stop(self) -> None:
        """Stop listening, abort all connections, and wait until their tasks have ended."""
        self.close()
        while self._tasks:
            await asyncio.sleep(END_S)
            self.close()
        await asyncio.sleep(0)

    async def _follow(self) -> None:
        """Check the files of the certificate and the token for changes, in a thread, because a disk may hang."""
        while True:
            await asyncio.sleep(REFRESH_S)
            await asyncio.to_thread(self._protection.refresh)

    def _enter(self, connection: socket.socket, host: str) -> None:
        address = address_of(host)
        if not self._visitors.may_enter(address, asyncio.get_running_loop().time()):
            connection.close()
            return
        client = _Client(connection, address)
        self._hold(client)
        task = asyncio.create_task(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _hold(self, client: _Client, size: int = CONNECTION_BYTES) -> None:
        for each in self._visitors.hold(client, client.address, size):
            each.end()

    async def _serve(self, client: _Client) -> None:
        reader, writer = await asyncio.open_connection(sock=client.connection)
        client.writer = writer
        plain, context = PlainChannel(reader, writer), self._protection.context
        channel: Channel = plain
        try:
            if client.is_ended:
                raise ConnectionAbortedError("the address has too many connections")
            if context is not None:
                channel = TlsChannel(plain, context)
            await self._converse(channel, client)
        except (h11.ProtocolError, ConnectionError, TimeoutError, ssl.SSLError) as error:
            log.debug("dropped an HTTP client: %s", error)
            # After a timeout, abort, because a normal close would wait until the client has read all bytes.
            if isinstance(error, TimeoutError):
                writer.transport.abort()
        finally:
            await self._close(channel, client, writer)

    async def _converse(self, channel: Channel, client: _Client) -> None:
        connection = h11.Connection(h11.SERVER)
        async with asyncio.timeout(REQUEST_S_MAX):
            if isinstance(channel, TlsChannel):
                await channel.shake_hands(partial(self._handshakes.turn, client.address))
            request = await _next_request(connection, channel)
            received = await self._body(connection, request, channel, client)
        if request is not None:
            page = await self._page(request, received)
            async with asyncio.timeout(ANSWER_S_MAX):
                await _answer(connection, request, page, channel)

    async def _body(
        self, connection: h11.Connection, request: h11.Request | None, channel: Channel, client: _Client
    ) -> Received | None:
        """Read the body of a POST; return None for other requests, and for a body that is too large."""
        taking = self._posts.get(_path(request)) if request is not None and request.method == b"POST" else None
        if taking is None:
            return None
        body = bytearray()
        if connection.they_are_waiting_for_100_continue:
            await channel.send(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        async for data in _data(connection, channel):
            self._hold(client, len(data))
            body += data
            if len(body) > taking.bytes_max:
                return None
        return Received(bytes(body), client.address)

    async def _close(self, channel: Channel, client: _Client, writer: asyncio.StreamWriter) -> None:
        """Close the connection, which counts as open until its last bytes are sent or ANSWER_S_MAX have passed."""
        channel.close()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._visitors.leave(client)

    async def _page(self, request: h11.Request, received: Received | None) -> Page:
        path = _path(request)
        is_admitted = self._protection.admits(_authorization(request))
        if not is_admitted and path not in self._probes:
            return _unauthorized(self._protection.names.token)
        taking = self._posts.get(path)
        if taking is not None:
            return await _posted(request, taking, received)
        if request.method not in (b"GET", b"HEAD"):
            return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only the methods GET and HEAD are allowed\n")
        maker = self._pages.get(path)
        if maker is None:
            return text_page(
                HTTPStatus.NOT_FOUND, f"no such page; the pages are {', '.join(sorted({*self._pages, *self._posts}))}\n"
            )
        page = await maker()
        return page if is_admitted or page.status == HTTPStatus.OK else _without_reason(page.status)


async def _next_request(connection: h11.Connection, channel: Channel) -> h11.Request | None:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await channel.receive())
        else:
            return event if isinstance(event, h11.Request) else None


async def _data(connection: h11.Connection, channel: Channel) -> AsyncIterator[bytes]:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await channel.receive())
        elif isinstance(event, h11.Data):
            yield bytes(event.data)
        else:
            return


async def _posted(request: h11.Request, taking: Posts, received: Received | None) -> Page:
    if request.method != b"POST":
        return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only the method POST is allowed\n")
    if received is None:
        return text_page(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body may have at most {taking.bytes_max} bytes\n")
    return await taking.answer(received)


def _path(request: h11.Request) -> str:
    return request.target.split(b"?", 1)[0].decode("ascii", "replace")


def _authorization(request: h11.Request) -> bytes:
    """Return the value of the header Authorization; empty if the request has none, or several."""
    found = [value for name, value in request.headers if name == b"authorization"]
    return found[0] if len(found) == 1 else b""


def _unauthorized(setting: str) -> Page:
    text = f"this page requires the header 'Authorization: Bearer TOKEN' with the token in the file of {setting}\n"
    return text_page(HTTPStatus.UNAUTHORIZED, text)._replace(headers=(("WWW-Authenticate", "Bearer"),))


def _without_reason(status: HTTPStatus) -> Page:
    """Return a probe's page for a client without the token: only the status, because the reason may name topics."""
    return text_page(status, f"{status.phrase}; send the bearer token to get the reason\n")


async def _answer(connection: h11.Connection, request: h11.Request, page: Page, channel: Channel) -> None:
    headers = [("Content-Type", page.content_type), ("Connection", "close"), *page.headers]
    if isinstance(page.body, bytes):
        headers.append(("Content-Length", str(len(page.body))))
    head = h11.Response(status_code=page.status, reason=page.status.phrase, headers=headers)
    await channel.send(connection.send(head) or b"")
    if request.method != b"HEAD":
        async for data in _slices(page.body):
            await channel.send(connection.send(h11.Data(data=data)) or b"")
    await channel.send(connection.send(h11.EndOfMessage()) or b"")


async def _slices(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        for begin in range(0, len(body), WRITE_BYTES):
            yield body[begin : begin + WRITE_BYTES]
        return
    async for data in body:
        yield data
