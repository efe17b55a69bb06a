"""A TCP proxy between a client and a server; tests break its connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class BreakingProxy:
    """A proxy that forwards bytes both ways; it listens on `port`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.connections_total = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.connections_total += 1
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, there_writer}
        await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))
        self._writers -= {writer, there_writer}

    def break_all(self) -> None:
        """Abort all connections immediately."""
        for writer in self._writers:
            writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def breaking_proxy(target: tuple[str, int]) -> AsyncIterator[BreakingProxy]:
    """Run a proxy on a free port."""
    proxy = BreakingProxy(target)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.break_all()
