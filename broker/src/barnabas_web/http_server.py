"""Serve /metrics and the health pages over HTTP or HTTPS, with h11 for the protocol."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from barnabas_web.channel import Channel, PlainChannel, TlsChannel
from barnabas_web.protection import Protection

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
"""The maximum number of open connections; segment files and Kafka clients leave only few file descriptors."""
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


def text_page(status: HTTPStatus, text: str) -> Page:
    """Return a page of plain text."""
    return Page(status, "text/plain; charset=utf-8", text.encode())


class HttpServer:
    """Serve a fixed set of pages to GET and HEAD; answer other paths with 404 and other methods with 405.

    Above CONNECTIONS_MAX the oldest connection is closed. Probes are not affected, because a probe ends within
    milliseconds. If the port has a token, a request without the token gets 401, unless its path is in `probes`.
    """

    def __init__(
        self, pages: Mapping[str, PageMaker], probes: Collection[str] = (), protection: Protection | None = None
    ) -> None:
        self._pages = pages
        self._probes = probes
        self._protection = protection or Protection()
        self._handshakes = asyncio.Lock()
        self._following: asyncio.Task[None] | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The open connections, the oldest first."""

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; the system chooses a port if `port` is 0.

        From now on, a changed certificate or token is used. Raise OSError if the address is taken, or the host name is
        invalid.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, backlog=CONNECTIONS_MAX)
        except UnicodeError as error:  # The host name is invalid: a label is empty or too long.
            raise OSError(f"{host} is not a host name: {error}") from error
        if self._protection:
            self._following = asyncio.create_task(self._follow())
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening, and abort all connections, without waiting for their tasks."""
        if self._server is not None:
            self._server.close()
        if self._following is not None:
            self._following.cancel()
        for writer in self._open:
            writer.transport.abort()

    async def stop(self) -> None:
        """Stop listening, abort all connections, and wait until their tasks have ended."""
        self.close()
        while self._open:
            await asyncio.sleep(END_S)
            self.close()
        await asyncio.sleep(0)

    async def _follow(self) -> None:
        """Check the files of the certificate and the token for changes, in a thread, because a disk may hang."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(self._protection.refresh)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        plain, context = PlainChannel(reader, writer), self._protection.context
        channel: Channel = plain
        try:
            if context is not None:
                channel = TlsChannel(plain, context)
            await self._converse(channel)
        except (h11.ProtocolError, ConnectionError, TimeoutError, ssl.SSLError) as error:
            log.debug("dropped an HTTP client: %s", error)
            # After a timeout, abort, because a normal close would wait until the client has read all bytes.
            if isinstance(error, TimeoutError):
                writer.transport.abort()
        finally:
            await self._close(channel, writer)

    async def _converse(self, channel: Channel) -> None:
        connection = h11.Connection(h11.SERVER)
        async with asyncio.timeout(REQUEST_S_MAX):
            if isinstance(channel, TlsChannel):
                await channel.shake_hands(self._handshakes)
            request = await _next_request(connection, channel)
        if request is not None:
            page = await self._page(request)
            async with asyncio.timeout(ANSWER_S_MAX):
                await _answer(connection, request, page, channel)

    async def _close(self, channel: Channel, writer: asyncio.StreamWriter) -> None:
        """Close the connection, which counts as open until its last bytes are sent or ANSWER_S_MAX have passed."""
        channel.close()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()
        finally:
            self._open.pop(writer, None)

    async def _page(self, request: h11.Request) -> Page:
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        is_admitted = self._protection.admits(_authorization(request))
        if not is_admitted and path not in self._probes:
            return _unauthorized(self._protection.names.token)
        if request.method not in (b"GET", b"HEAD"):
            return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only the methods GET and HEAD are allowed\n")
        maker = self._pages.get(path)
        if maker is None:
            return text_page(HTTPStatus.NOT_FOUND, f"no such page; the pages are {', '.join(sorted(self._pages))}\n")
        page = await maker()
        return page if is_admitted or page.status == HTTPStatus.OK else _without_reason(page.status)


async def _next_request(connection: h11.Connection, channel: Channel) -> h11.Request | None:
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await channel.receive())
        else:
            return event if isinstance(event, h11.Request) else None


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
