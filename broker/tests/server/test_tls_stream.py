"""A TLS session over sockets that take and give few bytes at a time."""

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas_broker.server.tls_stream import ENCRYPTED_BYTES, UNASKED_BYTES_MAX, TlsStream
from harness.certificates import Authority

SOCKET_BYTES = 4096
LARGE_SOCKET_BYTES = 1 << 20


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("broker").file)
    return server, ssl.create_default_context(cadata=authority.certificate)


@pytest.fixture
def streams(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[tuple[TlsStream, TlsStream]]:
    with connected(contexts, SOCKET_BYTES) as pair:
        yield pair


@contextmanager
def connected(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], socket_bytes: int
) -> Iterator[tuple[TlsStream, TlsStream]]:
    server_context, client_context = contexts
    pair = socket.socketpair()
    for each in pair:
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, socket_bytes)
    server = TlsStream(pair[0], server_context, server_side=True)
    client = TlsStream(pair[1], client_context, server_hostname="localhost")
    unfinished = [client, server]
    while unfinished:
        unfinished = [stream for stream in unfinished if not shook_hands(stream)]
    yield server, client
    server.close()
    client.close()


def shook_hands(stream: TlsStream) -> bool:
    try:
        stream.shake_hands()
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        return False
    return True


def sent_by(stream: TlsStream, part: bytes) -> int:
    try:
        return stream.send(memoryview(part))
    except BlockingIOError:
        return 0


def received_by(stream: TlsStream, size_bytes: int) -> bytes:
    buffer = bytearray(size_bytes)
    try:
        return bytes(buffer[: stream.receive_into(memoryview(buffer))])
    except BlockingIOError:
        return b""


@pytest.mark.parametrize("seed", range(8))
def test_bytes_arrive_in_order_whatever_the_sizes_of_parts_and_buffers(
    streams: tuple[TlsStream, TlsStream], seed: int
) -> None:
    chance = random.Random(seed)
    sender, receiver = streams if seed % 2 else reversed(streams)
    sizes = (1, 10, 1000, 16_384, 16_385, 60_000)
    parts = [chance.randbytes(chance.choice(sizes)) for _ in range(30)]
    unsent, received = list(parts), b""
    while unsent or len(received) < sum(map(len, parts)):
        if unsent and chance.random() < 0.7:
            sent = sent_by(sender, unsent[0])
            unsent[0] = unsent[0][sent:]
            if not unsent[0]:
                del unsent[0]
        else:
            received += received_by(receiver, chance.choice(sizes))
    assert received == b"".join(parts)


@pytest.mark.parametrize("seed", range(4))
def test_many_tls_records_that_arrive_together_are_decrypted_in_place(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], seed: int
) -> None:
    chance = random.Random(seed)
    with connected(contexts, LARGE_SOCKET_BYTES) as (server, client):
        expected = received = b""
        for _ in range(20):
            parts = [chance.randbytes(chance.choice((100, 16_384, 20_000))) for _ in range(8)]
            for part in parts:
                assert sent_by(client, part) == len(part)
            expected += b"".join(parts)
            received += received_by(server, chance.choice((40_000, 100_000, 300_000)))
            while received != expected:
                received += received_by(server, chance.choice((1_000, 29_000, 300_000)))
        assert not server.has_received


def test_bytes_that_left_the_socket_are_reported_until_they_are_received(
    streams: tuple[TlsStream, TlsStream],
) -> None:
    server, client = streams
    assert client.send(memoryview(b"first second")) == len(b"first second")
    assert received_by(server, len(b"first")) == b"first"
    assert server.has_received
    assert received_by(server, ENCRYPTED_BYTES) == b" second"
    assert not server.has_received


def test_a_stream_receives_no_bytes_after_the_other_side_has_closed(streams: tuple[TlsStream, TlsStream]) -> None:
    server, client = streams
    client.close()
    assert server.receive_into(memoryview(bytearray(10))) == 0


def test_replies_that_the_other_side_never_reads_end_the_connection(streams: tuple[TlsStream, TlsStream]) -> None:
    server, client = streams
    while sent_by(server, b"x" * 1000):
        pass
    server._outgoing.write(b"x" * (UNASKED_BYTES_MAX + 1))
    client.send(memoryview(b"a request"))
    with pytest.raises(ConnectionAbortedError, match="does not read the replies"):
        server.receive_into(memoryview(bytearray(10)))
