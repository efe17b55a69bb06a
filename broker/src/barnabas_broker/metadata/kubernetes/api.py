"""Requests to the API server over connections that are kept, each with a bound on its time, and streams of lines.

Raises StoreUnavailable for whatever is no answer to the question: no connection, no time, no permission, errors of the
server.
"""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, NoReturn

import aiohttp
import msgspec

from barnabas_broker.metadata.kubernetes.access import Access, NoAccess
from barnabas_broker.metadata.store import HistoryCompacted, StoreUnavailable

REQUEST_S: Final = 3.0
"""Shorter than a session, so that a lease is tried to be renewed again before it ends."""
BULK_S: Final = 20.0
"""For listings, which may be tens of MB."""
SILENCE_S: Final = 90.0
"""A watch hears from the server every minute even when nothing changes."""
RETRY_AFTER_S: Final = 1.0
KEPT_S: Final = 30.0
"""How long an idle connection is kept. The API server closes them after 90 s."""
_DEAD_PEER_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A machine that vanished is noticed within 15 s."""

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """A status that the caller has to deal with, and the body."""

    status: int
    body: bytes


class _Details(msgspec.Struct):
    name: str = ""


class Status(msgspec.Struct):
    """What the API server says where there is no object to answer with."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


def parse_status(body: bytes) -> Status:
    """A proxy's page in place of a Status becomes the message of one."""
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError:
        return Status(message=body[:200].decode(errors="replace").strip())


def _open_socket(address: tuple[int, int, int, str, object]) -> socket.socket:
    opened = socket.socket(address[0], address[1], address[2])
    for level, option, value in _DEAD_PEER_OPTIONS:
        opened.setsockopt(level, option, value)
    return opened


class ApiClient:
    """One client of one API server."""

    def __init__(self, access: Access) -> None:
        self._access = access
        connector = aiohttp.TCPConnector(
            ssl=access.tls or False,
            limit=0,  # Who writes much at once bounds it.
            keepalive_timeout=KEPT_S,
            socket_factory=_open_socket,
        )
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "barnabas-broker"}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False)
        self._streams: set[aiohttp.ClientResponse] = set()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = REQUEST_S,
    ) -> Answer:
        """The answer to a request; one that the server has no time for is made again. Raises StoreUnavailable."""
        what = f"{method} {self._access.server}{path}"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    answer = await self._request(method, path, query, body, content_type)
                    if answer.status != HTTPStatus.TOO_MANY_REQUESTS:
                        break
                    await asyncio.sleep(RETRY_AFTER_S)
        except TimeoutError:
            self.end_streams()  # They may hang at the same server that does not answer.
            raise StoreUnavailable(f"{what}: no answer within {timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError, NoAccess) as error:
            raise StoreUnavailable(f"{what}: {error or type(error).__name__}") from error
        _check(what, answer)
        return answer

    async def _request(
        self, method: str, path: str, query: Mapping[str, str] | None, body: bytes | None, content_type: str
    ) -> Answer:
        headers = self._headers()
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._access.server + path
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            method, url, params=query, data=body, headers=headers, timeout=timeout
        ) as response:
            return Answer(response.status, await response.read())

    def _headers(self) -> dict[str, str]:
        token = self._access.read_token()
        return {} if token is None else {"Authorization": f"Bearer {token}"}

    async def stream(self, path: str, query: Mapping[str, str]) -> AsyncIterator[list[bytes]]:
        """The lines of a body that goes on, as they come, until the server ends it.

        Raises StoreUnavailable, HistoryCompacted.
        """
        what = f"GET {self._access.server}{path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S, sock_read=SILENCE_S)
        try:
            async with asyncio.timeout(REQUEST_S):
                response = await self._session.get(
                    self._access.server + path, params=query, headers=self._headers(), timeout=timeout
                )
            try:
                self._streams.add(response)
                if response.status != HTTPStatus.OK:
                    _refuse_stream(what, Answer(response.status, await response.read()))
                async for lines in _lines(response.content):
                    yield lines
            finally:
                self._streams.discard(response)
                response.close()
        except (aiohttp.ClientError, OSError, NoAccess) as error:  # TimeoutError is an OSError.
            raise StoreUnavailable(f"{what}: {error or type(error).__name__}") from error

    def end_streams(self) -> None:
        """Whoever reads one hears that the connection is lost."""
        for response in list(self._streams):
            response.close()

    async def close(self) -> None:
        """Ends all that is under way."""
        self.end_streams()
        await self._session.close()


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    rest = b""
    while chunk := await _read(content):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines


async def _read(content: aiohttp.StreamReader) -> bytes:
    try:
        return await content.readany()
    except RuntimeError as error:  # What aiohttp says when the connection was closed between two reads.
        raise aiohttp.ClientConnectionError(str(error)) from error


def _refuse_stream(what: str, answer: Answer) -> NoReturn:
    message = f"{what}: {answer.status} {parse_status(answer.body).message}"
    if answer.status == HTTPStatus.GONE:
        raise HistoryCompacted(message)
    raise StoreUnavailable(message)


def _check(what: str, answer: Answer) -> None:
    """Raises StoreUnavailable where the server did not deal with the request."""
    refused = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if answer.status in refused or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise StoreUnavailable(f"{what}: {answer.status} {parse_status(answer.body).message}")
