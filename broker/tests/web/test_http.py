"""The pages over real HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from barnabas_web import http_server as http
from barnabas_web.http_server import HttpServer, Page, text_page
from harness.deadline import PATIENCE_S


async def _healthz() -> Page:
    return text_page(HTTPStatus.OK, "fine\n")


def _fetch(port: int, path: str, method: str) -> tuple[int, str]:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


async def _long() -> Page:
    async def slices() -> AsyncIterator[bytes]:
        for number in range(1_000):
            yield b"%999d\n" % number
            await asyncio.sleep(0)

    return Page(HTTPStatus.OK, "text/plain", slices())


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/healthz", 200, "fine\n"),
        ("HEAD", "/healthz", 200, ""),
        ("GET", "/healthz?verbose", 200, "fine\n"),
        ("GET", "/long", 200, "".join(f"{number:999}\n" for number in range(1_000))),
        ("HEAD", "/long", 200, ""),
        ("GET", "/nothing", 404, "no such page; the pages are /healthz, /long\n"),
        ("POST", "/healthz", 405, "only the methods GET and HEAD are allowed\n"),
    ],
)
async def test_a_page_is_served(method: str, path: str, status: int, body: str) -> None:
    server = HttpServer({"/healthz": _healthz, "/long": _long})
    port = await server.start("127.0.0.1", 0)
    assert await asyncio.to_thread(_fetch, port, path, method) == (status, body)
    server.close()


async def test_a_connection_that_sends_no_http_is_closed() -> None:
    server = HttpServer({"/healthz": _healthz})
    port = await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\x00\x01\x02 no HTTP at all\r\n\r\n")
    assert await reader.read() == b""
    writer.close()
    server.close()


async def test_many_silent_clients_hold_few_descriptors_and_keep_no_other_client_out() -> None:
    limits = http.OF_PAGES._replace(rate=1000)  # All clients here have one address.
    server = HttpServer({"/healthz": _healthz}, limits=limits)
    port = await server.start("127.0.0.1", 0)
    descriptors = Path("/proc/self/fd")
    had = len(list(descriptors.iterdir()))
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4 * http.CONNECTIONS_MAX)]
    assert await asyncio.to_thread(_fetch, port, "/healthz", "GET") == (200, "fine\n")
    assert len(list(descriptors.iterdir())) - had - len(silent) <= http.CONNECTIONS_MAX
    assert await silent[0][0].read() == b""
    for _, writer in silent:
        writer.close()
    server.close()


def _accepted(port: int) -> int:
    """Count the accepted sockets of a port that have a descriptor; others in /proc/net/tcp have the inode 0."""
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] != "0A" and row[9] != "0" for row in rows)


async def test_a_client_that_does_not_read_its_page_keeps_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_S_MAX", 0.2)
    ended: list[bool] = []

    async def endless() -> Page:
        async def slices() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield bytes(1024 * 1024)
            finally:
                ended.append(True)

        return Page(HTTPStatus.OK, "text/plain", slices())

    server = HttpServer({"/endless": endless})
    port = await server.start("127.0.0.1", 0)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET /endless HTTP/1.1\r\nHost: here\r\n\r\n")
        async with asyncio.timeout(PATIENCE_S):
            while not _accepted(port):
                await asyncio.sleep(0.001)
            while not ended or _accepted(port):
                await asyncio.sleep(0.001)
    server.close()
