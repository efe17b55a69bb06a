"""Serve /metrics and the health pages over HTTP, with h11 for the protocol."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 32
"""The most open connections; they use the few file descriptors that are not set aside for segments and clients."""
READ_BYTES: Final = 16 * 1024
REQUEST_S_MAX: Final = 10.0
"""The time for a request to arrive, after which the connection is closed."""
ANSWER_S_MAX: Final = 60.0
"""The time for the client to read the response, after which the connection is closed."""


class Page(NamedTuple):
    """The HTTP response for a path: status, content type and body."""

    status: HTTPStatus
    content_type: str
    body: bytes | AsyncIterator[bytes]
    """The bytes of the page; a long page is an iterator of slices, so that only one slice is in memory."""


PageMaker = Callable[[], Awaitable[Page]]


def text_page(status: HTTPStatus, text: str) -> Page:
    """Return a page of plain text."""
    return Page(status, "text/plain; charset=utf-8", text.encode())


class HttpServer:
    """Serve a fixed set of pages to GET and HEAD; answer other paths with 404 and other methods with 405.

    Above CONNECTIONS_MAX the oldest connection is closed, because a probe needs only milliseconds.
    """

    def __init__(self, pages: Mapping[str, PageMaker]) -> None:
        self._pages = pages
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}
        """The open connections, the oldest first."""

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; the system chooses a port if `port` is 0.

        Raise OSError if the address is taken.
        """
        try:
            self._server = await asyncio.start_server(self._serve, host, port, backlog=CONNECTIONS_MAX)
        except UnicodeError as error:  # The host name is invalid: a label is empty or too long.
            raise OSError(f"{host} is not a host name: {error}") from error
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        connection = h11.Connection(h11.SERVER)
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                request = await self._next_request(connection, reader)
            if request is not None:
                page = await self._page(request)
                async with asyncio.timeout(ANSWER_S_MAX):
                    await _answer(connection, request, page, writer)
        except (h11.ProtocolError, ConnectionError, TimeoutError) as error:
            log.debug("dropped an HTTP client: %s", error)
            if isinstance(error, TimeoutError):  # Bytes that the client does not read would keep the socket open.
                writer.transport.abort()
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _next_request(self, connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(READ_BYTES))
            elif isinstance(event, h11.Request):
                return event
            else:
                return None

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return text_page(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        path = request.target.split(b"?", 1)[0].decode("ascii", "replace")
        maker = self._pages.get(path)
        if maker is None:
            return text_page(HTTPStatus.NOT_FOUND, f"no such page; the pages are {', '.join(sorted(self._pages))}\n")
        return await maker()


async def _answer(connection: h11.Connection, request: h11.Request, page: Page, writer: asyncio.StreamWriter) -> None:
    headers = [("Content-Type", page.content_type), ("Connection", "close")]
    if isinstance(page.body, bytes):
        headers.append(("Content-Length", str(len(page.body))))
    head = h11.Response(status_code=page.status, reason=page.status.phrase, headers=headers)
    writer.write(connection.send(head) or b"")
    if request.method != b"HEAD":
        async for data in _slices(page.body):
            writer.write(connection.send(h11.Data(data=data)) or b"")
            await writer.drain()
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    await writer.drain()


async def _slices(body: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(body, bytes):
        yield body
        return
    async for data in body:
        yield data
