"""Serve /metrics, the health pages and the operator's webhook over HTTP or HTTPS, with h11 for the protocol."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from barnabas_web.channel import Channel, PlainChannel, TlsChannel
from barnabas_web.listening import Listening
from barnabas_web.protection import Protection
from barnabas_web.visitors import CONNECTION_BYTES, Limits, Turns, Visitors, address_of

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
"""The maximum number of open connections; segment files and Kafka clients leave only few file descriptors."""
OF_PAGES: Final = Limits(CONNECTIONS_MAX * CONNECTION_BYTES, rate=50)
WRITE_BYTES: Final = 64 * 1024
REQUEST_S_MAX: Final = 10.0
"""The seconds for the handshake and the arrival of the request, after which the connection is closed."""
ANSWER_S_MAX: Final = 60.0
"""The seconds for the client to read the response, after which the connection is closed."""
LOOK_S: Final = 5.0
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
            await asyncio.sleep(LOOK_S)
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
