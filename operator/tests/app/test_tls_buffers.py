"""The memory of the operator's TLS connections. Each watch has one."""

import socket
import ssl
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

import pytest

from barnabas_kube.access import Access
from barnabas_kube.client import ApiClient
from barnabas_operator.app.operator import TLS_BUFFER_BYTES, shrink_tls_buffers
from harness.certificates import Authority

STREAMS: Final = 20
HELD_BYTES_MAX: Final = 2 * TLS_BUFFER_BYTES
"""The bound of what each idle stream may hold: the buffer, and the objects of asyncio and aiohttp."""


@contextmanager
def api_server_with_streams(folder: Path) -> Iterator[Access]:
    """Serve one line to each of STREAMS connections, which stay open. The server has no loop and no such buffers."""
    authority = Authority(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("api-server").file)
    kept: list[socket.socket] = []

    def serve() -> None:
        for _ in range(STREAMS):
            connection = server.wrap_socket(listener.accept()[0], server_side=True)
            kept.append(connection)
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nADDED\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = Thread(target=serve)
        thread.start()
        trust = ssl.create_default_context(cafile=authority.file)
        yield Access(f"https://127.0.0.1:{listener.getsockname()[1]}", trust, lambda: None)
        thread.join()
    for connection in kept:
        connection.close()


async def test_an_idle_stream_of_the_api_server_holds_no_large_buffer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SSLProtocol, "max_size", SSLProtocol.max_size)
    shrink_tls_buffers()
    with api_server_with_streams(tmp_path) as access:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(ApiClient(access, "test"))
            tracemalloc.start()
            stack.callback(tracemalloc.stop)
            for _ in range(STREAMS):
                stream = await stack.enter_async_context(aclosing(client.stream("/", {})))
                assert await anext(stream) == [b"ADDED"]
            assert tracemalloc.get_traced_memory()[0] / STREAMS < HELD_BYTES_MAX
