"""TLS connections: requests of all sizes, clients that are refused, and handshakes that never finish."""

import asyncio
import shutil
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from barnabas_broker.app.tls_contexts import tls_of_listener
from barnabas_broker.server import tls_stream
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.connection_bounds import ConnectionLimits
from barnabas_broker.server.listener import Listener, SocketSettings
from barnabas_broker.server.sasl_session import AuthenticationCounts
from barnabas_core.config.listeners import ListenerSecurity, SecurityProtocol
from harness.certificates import Authority, Identity
from harness.deadline import PATIENCE_S
from harness.require import require

LARGE_BYTES = 3_000_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def echo(connection: Connection, buffer: memoryview, start: int, end: int) -> None:
    body = bytes(buffer[start:end])
    answer = connection.client.principal.encode() if body == b"who" else body
    connection.answer([struct.pack(">i", len(answer)), answer])


@asynccontextmanager
async def listening(
    authority: Authority, max_connections: int = 10_000, **settings: str
) -> AsyncIterator[tuple[Listener, int]]:
    broker = authority.issue("broker")
    texts = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(broker.file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    tls = tls_of_listener(ListenerSecurity("SSL", SecurityProtocol.SSL, texts)).server
    counts = {"SSL": AuthenticationCounts()}
    limits = ConnectionLimits(max_connections, 10_000, {}, 10_000)
    loop = asyncio.get_running_loop()
    sockets = SocketSettings(8 << 20, 64 << 20, None, protected_listener="BROKERS")
    listener = Listener(loop, echo, sockets, lambda: limits, lambda _: tls, counts=counts)
    port = listener.bind("SSL", "127.0.0.1", 0)
    listener.start()
    try:
        yield listener, port
    finally:
        listener.close()


def counts_of(listener: Listener) -> AuthenticationCounts:
    return listener._counts["SSL"]


def client_context(authority: Authority, identity: Identity | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate)
    if identity is not None:
        context.load_cert_chain(identity.file)
    return context


async def ask(port: int, context: ssl.SSLContext, *bodies: bytes) -> list[bytes]:
    """Send all requests, then read the answers."""
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context, server_hostname="localhost")
        writer.write(b"".join(struct.pack(">i", len(body)) + body for body in bodies))
        answers = []
        for _ in bodies:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answers.append(await reader.readexactly(size))
        writer.close()
        return answers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_requests_and_responses_of_all_sizes_pass_through_tls(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    bodies = [b"a", b"b" * 16_384, b"c" * LARGE_BYTES, b"d" * 70_000, *[b"%d" % number for number in range(500)]]
    async with listening(authority) as (_, port):
        context = client_context(authority)
        context.minimum_version = context.maximum_version = version
        assert await ask(port, context, *bodies) == bodies


async def test_a_large_request_is_decrypted_over_many_turns_of_the_loop(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "DECRYPTED_BYTES", 1000)
    body = b"x" * LARGE_BYTES
    async with listening(authority) as (_, port):
        assert await ask(port, client_context(authority), body, b"next") == [body, b"next"]


async def test_small_requests_are_served_while_memory_for_requests_is_used_up(authority: Authority) -> None:
    async with listening(authority) as (listener, port):
        listener.pool.is_exhausted = True
        bodies = [b"x" * size for size in (1, 2_000, 9_000)] * 5
        assert await ask(port, client_context(authority), *bodies) == bodies


@pytest.mark.parametrize("rules", ["DEFAULT", "RULE:^CN=(.*?),.*$/$1/U"])
async def test_the_principal_of_a_client_comes_from_its_certificate(authority: Authority, rules: str) -> None:
    expected = {"DEFAULT": rb"User:CN=alice,O=Tests\, Inc"}.get(rules, b"User:ALICE")
    async with listening(authority, ssl_client_auth="required", ssl_principal_mapping_rules=rules) as (_, port):
        assert await ask(port, client_context(authority, authority.issue("alice")), b"who") == [expected]


async def test_a_certificate_that_strict_parsers_refuse_still_gives_the_principal(authority: Authority) -> None:
    alice = client_context(authority, authority.issue_printable("alice@example*"))
    async with listening(authority, ssl_client_auth="required") as (_, port):
        assert await ask(port, alice, b"who") == [rb"User:CN=alice@example*,O=Tests\, Inc"]


async def test_a_bug_in_a_handshake_ends_only_that_handshake(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def principal_of(_: bytes | None) -> str:
        raise ValueError("a certificate that nobody expected")

    escaped: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    async with listening(authority) as (listener, port):
        good = listener._tls_of("SSL")
        assert good is not None
        listener._tls_of = lambda _: good._replace(principal_of=principal_of)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            await ask(port, client_context(authority), b"who")
        listener._tls_of = lambda _: good
        assert await ask(port, client_context(authority), b"x") == [b"x"]
        assert counts_of(listener).failures["TLS"] == 1
    assert not escaped
    assert "bug in the TLS handshake of 127.0.0.1:" in caplog.text


async def test_a_client_without_a_certificate_is_anonymous(authority: Authority) -> None:
    async with listening(authority, ssl_client_auth="requested") as (_, port):
        assert await ask(port, client_context(authority), b"who") == [b"User:ANONYMOUS"]


def wrong_identities(authority: Authority, other: Authority) -> list[Identity | None]:
    """Return None, then certificates of another authority, of another time, and for another use."""
    return [
        None,
        other.issue("stranger"),
        other.itself(),
        authority.issue("late", days=-1),
        authority.issue("early", begins_in_days=1),
        authority.issue("server", usages=[ExtendedKeyUsageOID.SERVER_AUTH]),
    ]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
async def test_clients_with_an_invalid_certificate_or_handshake_are_refused_and_others_are_served(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = wrong_identities(authority, Authority(tmp_path, "other"))
    long_record = b"\x16\x03\x03\xff\xff" + bytes(400)
    strange = (b"GET / HTTP/1.0\r\n\r\n", struct.pack(">ihhi", 10, 18, 0, 1) + b"\xff\xff", bytes(400), long_record)

    async def plain_text(port: int, text: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("localhost", port)
        writer.write(text)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async with listening(authority, ssl_client_auth="required") as (listener, port):
        for identity in wrong:
            with pytest.raises((OSError, asyncio.IncompleteReadError)):
                await ask(port, client_context(authority, identity), b"who")
        for text in strange:
            assert b"HTTP" not in await plain_text(port, text)
        old = client_context(authority, authority.issue("old"))
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.options &= ~ssl.OP_NO_TLSv1_1
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_1
        weak = client_context(authority, authority.issue("weak"))
        weak.maximum_version = ssl.TLSVersion.TLSv1_2
        weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256:AES128-SHA:@SECLEVEL=0")
        for context in (old, weak):
            with pytest.raises(OSError, match=r"(?i)alert|protocol|version"):
                await ask(port, context, b"who")
        assert counts_of(listener).failures == {"TLS": len(wrong) + len(strange) + 2}
        assert await ask(port, client_context(authority, authority.issue("alice")), b"x") == [b"x"]
        listener.handshakes.check()
    assert "TLS handshakes failed: 127.0.0.1:" in caplog.text


async def test_a_client_cannot_renegotiate(authority: Authority) -> None:
    require(shutil.which("openssl"), "openssl is not on the machine")
    async with listening(authority) as (_, port), asyncio.timeout(PATIENCE_S):
        client = await asyncio.create_subprocess_exec(
            *("openssl", "s_client", "-tls1_2", "-CAfile", str(authority.file), "-connect", f"127.0.0.1:{port}"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await client.communicate(b"R\n")  # Its command to renegotiate.
    assert b"Verify return code: 0 (ok)" in output
    assert b"RENEGOTIATING" in output
    assert b"no renegotiation" in output


async def test_unfinished_handshakes_do_not_keep_other_clients_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKES_MAX", 20)
    async with listening(authority) as (listener, port):
        silent = [await asyncio.open_connection("localhost", port) for _ in range(30)]
        assert await ask(port, client_context(authority), b"x") == [b"x"]
        assert len(listener.handshakes) <= 20
        monkeypatch.setattr(tls_stream, "HANDSHAKE_S_MAX", -1.0)
        listener.handshakes.check()
        assert len(listener.handshakes) == 0
        assert [await reader.read() for reader, _ in silent] == [b""] * 30
        for _, writer in silent:
            writer.close()
    assert " more\n" in caplog.text


async def ask_as_broker(listener: Listener, authority: Authority, clients_port: int, clients: int) -> bytes:
    """Connect as a broker, let `clients` begin handshakes, and finish the broker's one with a request."""
    brokers_port = listener.bind("BROKERS", "127.0.0.1", 0)
    listener.start()
    async with asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("localhost", brokers_port)
        while not listener.handshakes:
            await asyncio.sleep(0)
        opened = [writer, *[(await asyncio.open_connection("localhost", clients_port))[1] for _ in range(clients)]]
        listener.handshakes.check()
        await writer.start_tls(client_context(authority), server_hostname="localhost")
        writer.write(struct.pack(">i", 1) + b"x")
        answer = await reader.readexactly(5)
    for each in opened:
        each.close()
    return answer[4:]


async def test_a_flood_of_handshakes_does_not_end_the_handshake_of_a_broker(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKES_MAX", 20)
    async with listening(authority) as (listener, port):
        assert await ask_as_broker(listener, authority, port, clients=30) == b"x"


async def test_silent_connections_to_the_listener_of_brokers_cost_no_client_its_handshake(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("HANDSHAKES_MAX", "BROKERS_MAX"):
        monkeypatch.setattr(tls_stream, limit, 20, raising=False)
    async with listening(authority) as (listener, port):
        brokers_port = listener.bind("BROKERS", "127.0.0.1", 0)
        listener.start()
        silent = [await asyncio.open_connection("localhost", brokers_port) for _ in range(25)]
        first, second = [await asyncio.open_connection("localhost", port) for _ in range(2)]
        async with asyncio.timeout(PATIENCE_S):
            while len(listener.handshakes) < 22:
                await asyncio.sleep(0)
            await first[1].start_tls(client_context(authority), server_hostname="localhost")
            first[1].write(struct.pack(">i", 1) + b"x")
            assert await first[0].readexactly(5) == b"\0\0\0\1x"
        for _, writer in (first, second, *silent):
            writer.close()


async def test_an_address_that_opens_many_handshakes_does_not_end_those_of_another(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_stream, "HANDSHAKES_MAX", 20)
    async with listening(authority) as (listener, port), asyncio.timeout(PATIENCE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        while not listener.handshakes:
            await asyncio.sleep(0)
        silent = [(await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(30)]
        await writer.start_tls(client_context(authority), server_hostname="localhost")
        writer.write(struct.pack(">i", 1) + b"x")
        assert await reader.readexactly(5) == b"\0\0\0\1x"
        for each in (writer, *silent):
            each.close()


async def test_a_broker_completes_its_handshake_while_clients_hold_all_connections(authority: Authority) -> None:
    async with listening(authority, max_connections=1) as (listener, port):
        context = client_context(authority)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context, server_hostname="localhost")
        assert await ask_as_broker(listener, authority, port, clients=0) == b"x"
        assert await reader.read() == b""
        writer.close()
