"""Send requests with a time limit to the API server over persistent connections, and read streams line by line.

Any HTTP response of the API server is returned as an Answer; without a response, NoAnswer is raised.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Final, NamedTuple, Self

import aiohttp
import msgspec

from barnabas_kube.access import Access, NoAccess

CONNECT_S: Final = 3.0
"""The timeout in seconds for the headers of the response that begins a stream."""
SILENCE_S: Final = 90.0
"""The seconds without data after which a watch fails; the API server sends a bookmark every minute."""
KEPT_S: Final = 30.0
"""The seconds for which an idle connection is kept; the API server closes idle connections after 90 s."""
_DEAD_PEER_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""The socket options that detect a dead peer within 15 s."""


class Answer(NamedTuple):
    """The response of the API server: an HTTP status and a body."""

    status: int
    body: bytes


class NoAnswer(Exception):
    """The error that a request got no response (no connection, timeout, no access); the message names the request."""


class StreamRefused(Exception):
    """The error that the API server refused a stream with an HTTP error status; the message names the request."""

    def __init__(self, what: str, answer: Answer) -> None:
        super().__init__(f"{what}: {answer.status} {parse_status(answer.body).message}")
        self.status = answer.status


class _Details(msgspec.Struct):
    name: str = ""


class Status(msgspec.Struct):
    """The Kubernetes Status object, which the API server sends in an error response."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


def parse_status(body: bytes) -> Status:
    """Parse a Status. From any other body, such as a proxy's error page, the first 200 bytes become the message."""
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
    """A client of one API server, created and closed on the event loop that uses it."""

    def __init__(self, access: Access, agent: str) -> None:
        """Create a client; `agent` names this program in the API server's log."""
        self._access = access
        connector = aiohttp.TCPConnector(
            ssl=access.tls or False,
            limit=0,  # The number of connections has no limit, because callers limit their requests.
            keepalive_timeout=KEPT_S,
            socket_factory=_open_socket,
        )
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": agent}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, auto_decompress=False)
        self._streams: set[aiohttp.ClientResponse] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        *,
        timeout_s: float,
        token: str | None = None,
    ) -> Answer:
        """Return the response to one request, which carries `token`, or by default the token of the access.

        Raise NoAnswer if there is none; a timeout also ends all streams.
        """
        what = f"{method} {self._access.server}{path}"
        try:
            async with asyncio.timeout(timeout_s):
                headers = self._headers() if token is None else _bearer(token)
                return await self._request(method, path, query, body, content_type, headers)
        except TimeoutError:
            self.end_streams()  # The streams use the same server, so they may hang, too.
            raise NoAnswer(f"{what}: no answer within {timeout_s:.3g} s") from None
        except (aiohttp.ClientError, OSError, NoAccess) as error:
            raise NoAnswer(f"{what}: {str(error) or type(error).__name__}") from error

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | None,
        content_type: str,
        headers: dict[str, str],
    ) -> Answer:
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._access.server + path
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._open().request(
            method, url, params=query, data=body, headers=headers, timeout=timeout
        ) as response:
            return Answer(response.status, await response.read())

    def _open(self) -> aiohttp.ClientSession:
        """Return the open session. After `close`, raise a ClientError instead of aiohttp's RuntimeError."""
        if self._session.closed:
            raise aiohttp.ClientConnectionError("the client of the Kubernetes API is closed")
        return self._session

    def _headers(self) -> dict[str, str]:
        token = self._access.read_token()
        return {} if token is None else _bearer(token)

    async def stream(
        self, path: str, query: Mapping[str, str], silence_s: float = SILENCE_S
    ) -> AsyncGenerator[list[bytes], None]:
        """Yield lists of whole lines of a body as they arrive, until the server ends the body.

        Raise StreamRefused if the response is an error, and NoAnswer if the connection fails or no data arrive for
        `silence_s` seconds.
        """
        what = f"GET {self._access.server}{path}"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence_s)
        try:
            async with asyncio.timeout(CONNECT_S):
                response = await self._open().get(
                    self._access.server + path, params=query, headers=self._headers(), timeout=timeout
                )
            try:
                self._streams.add(response)
                if response.status != HTTPStatus.OK:
                    raise StreamRefused(what, Answer(response.status, await response.read()))
                async for lines in _lines(response.content):
                    yield lines
            finally:
                self._streams.discard(response)
                response.close()
        except (aiohttp.ClientError, OSError, NoAccess) as error:  # TimeoutError is a subclass of OSError.
            raise NoAnswer(f"{what}: {str(error) or type(error).__name__}") from error

    def end_streams(self) -> None:
        """Close all streams; their readers get the error of a lost connection."""
        for response in list(self._streams):
            response.close()

    async def close(self) -> None:
        """End all requests and streams."""
        self.end_streams()
        await self._session.close()


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[list[bytes]]:
    rest = b""
    while chunk := await _read(content):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines


async def _read(content: aiohttp.StreamReader) -> bytes:
    try:
        return await content.readany()
    except RuntimeError as error:  # aiohttp raises this error if the connection closes between reads.
        raise aiohttp.ClientConnectionError(str(error)) from error
