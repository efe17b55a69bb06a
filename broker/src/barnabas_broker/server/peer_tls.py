"""Run the client side of a TLS handshake with another broker, over a socket that is already connected."""

import asyncio
import socket
import ssl
from typing import Final

from barnabas_broker.server.tls_stream import TlsStream
from barnabas_broker.server.tls_transport import TlsTransport

HANDSHAKE_S_MAX: Final = 10.0


async def shake_hands(
    loop: asyncio.AbstractEventLoop, connected: socket.socket, context: ssl.SSLContext, host: str
) -> TlsTransport:
    """Return the transport after the handshake. Raise OSError if the handshake fails or takes too long."""
    tls = TlsStream(connected, context, server_hostname=host)
    try:
        async with asyncio.timeout(HANDSHAKE_S_MAX):
            while not await _step(loop, tls):
                pass
    except BaseException:
        tls.close()
        raise
    return TlsTransport(loop, tls)


async def _step(loop: asyncio.AbstractEventLoop, tls: TlsStream) -> bool:
    """Continue the handshake; return True at its end, or False once the socket is ready for the next step."""
    try:
        tls.shake_hands()
    except ssl.SSLWantReadError:
        listen, ignore = loop.add_reader, loop.remove_reader
    except ssl.SSLWantWriteError:
        listen, ignore = loop.add_writer, loop.remove_writer
    else:
        return True
    is_ready = asyncio.Event()
    listen(tls.fileno(), is_ready.set)
    try:
        await is_ready.wait()
    finally:
        ignore(tls.fileno())
    return False
