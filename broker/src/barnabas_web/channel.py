"""The bytes of one connection, in clear or over TLS.

TLS runs over buffers in memory instead of asyncio's TLS, so that the connection's task also runs the handshake. The
task's deadline then covers the handshake, and the connection counts as open from its first byte on.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

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
