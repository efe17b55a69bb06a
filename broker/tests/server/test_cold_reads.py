"""Records that are not in the page cache are read in threads, while the loop serves other clients."""

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event

import pytest

from barnabas_broker.server import transport
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.connection_bounds import ConnectionLimits
from barnabas_broker.server.listener import Listener, SocketSettings
from barnabas_broker.server.transport import GATHER_BYTES_MAX, PIECE_BYTES, PageCache, is_cached
from barnabas_broker.storage.disk.files import PosixFile
from barnabas_broker.wire.framing import FileSlice, Part
from barnabas_core.config.definitions import INT_MAX
from harness.deadline import PATIENCE_S, wait_for
from harness.require import missing

LARGE_BYTES = 5 * PIECE_BYTES + 12_345
SMALL_BYTES = GATHER_BYTES_MAX + 70_000
"""The kernel may read all pages of a smaller part while it is asked whether it has them."""
START = 7_777


class World:
    """A listener that answers with slices of a file, or with the request itself."""

    def __init__(self, folder: Path) -> None:
        self.content = random.Random(0).randbytes(START + LARGE_BYTES)
        path = folder / "segment.log"
        path.write_bytes(self.content)
        self.file = PosixFile(os.open(path, os.O_RDWR))
        self.file.sync()
        self.listener: Listener
        self.port = 0
        self.outstanding: list[Callable[[list[Part]], None]] = []

    def chill(self) -> None:
        """Evict the file from the page cache; the kernel keeps pages that a socket still holds, so try until it is."""
        try:
            wait_for(self._forget, seconds_max=60)
        except AssertionError:
            missing("this file system does not tell what it has cached")
        self.listener.cold_reads.page_cache = PageCache(asyncio.get_running_loop().time)

    def _forget(self) -> bool:
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return not is_cached(self.file, START, 1)

    def dispatch(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        body = bytes(buffer[start:end])
        length = {b"large": LARGE_BYTES, b"small": SMALL_BYTES, b"less": SMALL_BYTES - 10_000}.get(body)
        if body == b"late":
            self.outstanding.append(connection.defer(reads_on=True))
        elif length is None:
            connection.answer([struct.pack(">i", len(body)), body])
        else:
            connection.answer([struct.pack(">i", length), FileSlice(self.file, START, length)])


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    made = World(folder)
    limits = ConnectionLimits(INT_MAX, INT_MAX, {}, INT_MAX)
    loop = asyncio.get_running_loop()
    made.listener = Listener(loop, made.dispatch, SocketSettings(1_000_000, 64_000_000, 600.0), lambda: limits)
    made.port = made.listener.bind("PLAINTEXT", "127.0.0.1", 0)
    made.listener.start()
    try:
        yield made
    finally:
        made.listener.close()


async def ask(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)
    finally:
        writer.close()


async def test_uncached_records_are_read_in_a_thread_and_cached_ones_are_sent_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(PATIENCE_S), world(tmp_path) as made:
        for body, length in ((b"large", LARGE_BYTES), (b"small", SMALL_BYTES)):
            made.chill()
            before = made.listener.cold_reads.reads_total
            assert await ask(made.port, body) == made.content[START : START + length]
            assert made.listener.cold_reads.reads_total > before
            before = made.listener.cold_reads.reads_total
            assert await ask(made.port, body) == made.content[START : START + length]
            assert made.listener.cold_reads.reads_total == before


def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Event:
    """Let no read end before the event."""
    disk, read = Event(), transport._read

    def read_slowly(piece: FileSlice, buffer: memoryview) -> None:
        disk.wait(PATIENCE_S)
        read(piece, buffer)

    monkeypatch.setattr(transport, "_read", read_slowly)
    return disk


async def test_a_hanging_disk_does_not_delay_other_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = slow_disk(monkeypatch)
    async with asyncio.timeout(PATIENCE_S), world(tmp_path) as made:
        made.chill()
        cold = [asyncio.ensure_future(ask(made.port, b"large")) for _ in range(10)]
        while made.listener.cold_reads.reads_total < len(cold):
            await asyncio.sleep(0.001)
        assert await ask(made.port, b"hello") == b"hello"
        gone = asyncio.ensure_future(ask(made.port, b"small"))
        while made.listener.cold_reads.reads_total == len(cold):
            await asyncio.sleep(0.001)
        gone.cancel()
        disk.set()
        assert all(answer == made.content[START:] for answer in await asyncio.gather(*cold))


async def test_a_response_ready_during_the_cold_read_of_an_earlier_one_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = slow_disk(monkeypatch)
    async with asyncio.timeout(PATIENCE_S), world(tmp_path) as made:
        made.chill()
        reads = made.listener.cold_reads
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        for body in (b"late", b"small", b"late"):
            writer.write(struct.pack(">i", len(body)) + body)
        while len(made.outstanding) < 2:
            await asyncio.sleep(0.001)
        first, second = made.outstanding
        first([b"first"])
        while not reads.reads_total:
            await asyncio.sleep(0.001)
        second([b"second"])
        disk.set()
        await reader.readexactly(len(b"first") + 4)
        assert await reader.readexactly(SMALL_BYTES) == made.content[START : START + SMALL_BYTES]
        assert await reader.readexactly(len(b"second")) == b"second"
        assert reads.reads_total == 1
        for body in (b"less", b"after"):
            writer.write(struct.pack(">i", len(body)) + body)
        await reader.readexactly(4)
        assert await reader.readexactly(SMALL_BYTES - 10_000) == made.content[START : START + SMALL_BYTES - 10_000]
        assert await reader.readexactly(4 + len(b"after")) == struct.pack(">i", len(b"after")) + b"after"
        writer.close()
