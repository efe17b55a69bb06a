"""Probes are answered while a client of another address floods the port."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from barnabas_core.conventions import WebFiles
from barnabas_web.http_server import HttpServer, Page, Posts, Received, text_page
from barnabas_web.visitors import CONNECTION_BYTES, Limits, Protection
from harness.certificates import Authority
from harness.deadline import PATIENCE_S

STRANGER, NODE = "127.0.0.7", "127.0.0.8"
PROBES = 20
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n"


async def _healthz() -> Page:
    return text_page(HTTPStatus.OK, "ok\n")


async def _echo(received: Received) -> Page:
    return text_page(HTTPStatus.OK, f"{len(received.body)} bytes")


async def asked(port: int, tls: ssl.SSLContext | None, request: bytes = REQUEST, host: str = NODE) -> bytes:
    """Return the status line of a request of a client with its own address."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=tls, local_addr=(host, 0), server_hostname="localhost" if tls else None
        )
        writer.write(request)
        answer = await reader.readline()
        writer.close()
        return answer


@asynccontextmanager
async def flooded(port: int, greeting: bytes) -> AsyncIterator[list[int]]:
    """Connect again and again from the stranger's address; the yielded list has one item, the number of connections."""
    count, open_ones = [0], list[asyncio.StreamWriter]()

    async def flood() -> None:
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(STRANGER, 0))
                writer.write(greeting)
                open_ones.append(writer)
            count[0] += 1
            if len(open_ones) > 200:
                open_ones.pop(0).transport.abort()

    tasks = [asyncio.create_task(flood()) for _ in range(8)]
    try:
        yield count
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in open_ones:
            writer.transport.abort()


@pytest.mark.parametrize("is_tls", [False, True])
async def test_probes_are_answered_during_a_flood(tmp_path: Path, is_tls: bool) -> None:
    authority = Authority(tmp_path / "pki")
    files = WebFiles(str(authority.issue("web").file)) if is_tls else WebFiles()
    tls = ssl.create_default_context(cafile=authority.file) if is_tls else None
    server = HttpServer({"/healthz": _healthz}, protection=Protection(files, WebFiles("c", "k", "t")))
    port = await server.start("127.0.0.1", 0)
    async with flooded(port, b"\x16\x03\x01\x02\x00\x01" if is_tls else b"GET ") as count:
        while count[0] < 200:
            await asyncio.sleep(0)
        answers = [await asked(port, tls) for _ in range(PROBES)]
    await server.stop()
    assert answers == [b"HTTP/1.1 200 OK\r\n"] * PROBES


def post(size: int) -> bytes:
    return b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


async def test_bodies_have_a_limit_and_count_for_their_address() -> None:
    limits = Limits(8 * CONNECTION_BYTES, rate=1000)
    server = HttpServer({}, posts={"/echo": Posts(_echo, 4 * CONNECTION_BYTES)}, limits=limits)
    port = await server.start("127.0.0.1", 0)
    waiting = [await asyncio.open_connection("127.0.0.1", port, local_addr=(STRANGER, 0)) for _ in range(3)]
    for _, writer in waiting:
        writer.write(post(4 * CONNECTION_BYTES)[:-1])
    # The first ones end, because the bodies are larger than all that the port holds.
    with suppress(ConnectionResetError):
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting[0][0].read() == b""
    assert await asked(port, None, post(4 * CONNECTION_BYTES)) == b"HTTP/1.1 200 OK\r\n"
    assert b"413" in await asked(port, None, post(4 * CONNECTION_BYTES + 1))
    assert b"405" in await asked(port, None, b"GET /echo HTTP/1.1\r\nHost: here\r\n\r\n")
    for _, writer in waiting:
        writer.transport.abort()
    await server.stop()
