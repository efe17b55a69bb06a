"""The pages over TLS, and with a bearer token."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from barnabas_core.conventions import WebFiles
from barnabas_web import http_server
from barnabas_web.http_server import HttpServer, Page, text_page
from barnabas_web.visitors import Protection
from harness.certificates import Authority
from harness.deadline import PATIENCE_S

NAMES = WebFiles("the.certificate", "the.key", "the.token")
TOKEN = "geheim"
BEARER = f"Bearer {TOKEN}"


async def _metrics() -> Page:
    return text_page(HTTPStatus.OK, "x" * 300_000)


async def _healthz() -> Page:
    return text_page(HTTPStatus.OK, "ok\n")


async def _readyz() -> Page:
    return text_page(HTTPStatus.SERVICE_UNAVAILABLE, "not in sync: salaries-0\n")


PAGES = {"/metrics": _metrics, "/healthz": _healthz, "/readyz": _readyz}
PROBES = ("/healthz", "/readyz")


class Served:
    """A port with a certificate and a token, for clients that trust its authority."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "pki")
        self.certificate, self.token = folder / "web.pem", folder / "token"
        self.certificate.write_text(self.authority.issue("old").file.read_text())
        self.token.write_text(f"{TOKEN}\n")
        self.protection = Protection(WebFiles(str(self.certificate), token=str(self.token)), NAMES)
        self.trust = ssl.create_default_context(cafile=self.authority.file)
        self.port = 0

    def ask(self, path: str, *authorization: str) -> tuple[int, str, Any]:
        """Return the status, the text and the headers of a page."""
        request = Request(f"https://127.0.0.1:{self.port}{path}")
        if authorization:
            request.add_header("Authorization", authorization[0])
        try:
            with urlopen(request, timeout=PATIENCE_S, context=self.trust) as answer:
                return answer.status, answer.read().decode(), answer.headers
        except HTTPError as error:
            return error.code, error.read().decode(), error.headers

    def shown(self) -> str:
        """Return the certificate that a client sees."""
        return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=PATIENCE_S)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """Serve the pages by a server of whose callbacks none may fail."""
    failed: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    served = Served(folder)
    server = HttpServer(PAGES, PROBES, served.protection)
    served.port = await server.start("127.0.0.1", 0)
    try:
        yield served
    finally:
        server.close()
    assert not failed


async def test_a_page_needs_the_token_and_a_probe_does_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await asyncio.to_thread(served.ask, "/metrics", BEARER))[:2] == (200, "x" * 300_000)
        assert (await asyncio.to_thread(served.ask, "/metrics", f"bearer  {TOKEN} "))[0] == 200
        assert (await asyncio.to_thread(served.ask, "/healthz"))[:2] == (200, "ok\n")
        for path in ("/metrics", "/metrics/", "/nothing", "//healthz", "/healthz/../metrics"):
            for given in ([], ["Bearer"], ["Bearer other"], [f"Basic {TOKEN}"], [TOKEN], [f"{BEARER}x"]):
                status, text, headers = await asyncio.to_thread(served.ask, path, *given)
                assert (status, headers["WWW-Authenticate"]) == (401, "Bearer"), (path, given)
                wanted = "this page requires the header 'Authorization: Bearer TOKEN' with the token in the file of"
                assert text == f"{wanted} the.token\n"


async def test_a_probe_gives_the_reason_only_to_clients_with_the_token(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        assert (await asyncio.to_thread(served.ask, "/readyz", BEARER))[:2] == (503, "not in sync: salaries-0\n")
        status, text, _ = await asyncio.to_thread(served.ask, "/readyz")
        assert (status, text) == (503, "Service Unavailable; send the bearer token to get the reason\n")


async def test_changed_certificates_and_tokens_are_used_and_unusable_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "REFRESH_S", 0.01)

    async def until(found: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(found):
                await asyncio.sleep(0.01)

    async with serving(tmp_path) as served:
        new = served.authority.issue("new")
        served.certificate.write_text("not yet")
        served.token.write_text("")
        await until(lambda: "keeps its old certificate" in caplog.text and "keeps its old token" in caplog.text)
        assert (await asyncio.to_thread(served.ask, "/metrics", BEARER))[0] == 200
        served.certificate.write_text(new.file.read_text())
        served.token.write_text("another")
        await until(lambda: served.ask("/metrics", "Bearer another")[0] == 200)
        await until(lambda: served.shown() == new.certificate)
        assert (await asyncio.to_thread(served.ask, "/metrics", BEARER))[0] == 401


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("where", ["before the handshake", "in the handshake", "after it"])
async def test_many_silent_tls_clients_hold_few_descriptors_and_keep_no_other_client_out(
    tmp_path: Path, where: str
) -> None:
    async def silent(served: Served) -> asyncio.StreamWriter:
        tls = served.trust if where == "after it" else None
        # An address that connects too often is refused, so the other client has another one.
        stranger = ("127.0.0.2", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=tls, local_addr=stranger)
        if where == "in the handshake":
            writer.write(b"\x16\x03\x01\x02\x00\x01")  # The beginning of a ClientHello of 512 bytes.
        return writer

    async with serving(tmp_path) as served:
        had = _descriptors()
        opened = []
        for _ in range(4 * http_server.CONNECTIONS_MAX):
            with suppress(ConnectionResetError):  # A fast machine opens more than 50 a second, and the rest is refused.
                opened.append(await silent(served))
        assert len(opened) > http_server.CONNECTIONS_MAX
        assert (await asyncio.to_thread(served.ask, "/healthz"))[0] == 200
        assert _descriptors() - had - len(opened) <= http_server.CONNECTIONS_MAX
        for writer in opened:
            writer.transport.abort()


async def test_a_handshake_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S_MAX", 0.1)
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        async with asyncio.timeout(PATIENCE_S):
            assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "sent", [b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b"\0" * 99]
)
async def test_a_connection_without_tls_gets_no_page(tmp_path: Path, sent: bytes) -> None:
    async with serving(tmp_path) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S):
            assert b"HTTP" not in await reader.read()
        writer.close()
        assert (await asyncio.to_thread(served.ask, "/healthz"))[0] == 200


async def test_older_versions_of_tls_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.trust.set_ciphers("ALL:@SECLEVEL=0")
        served.trust.minimum_version = served.trust.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError, match=r"TLSV1_ALERT_PROTOCOL_VERSION|tlsv1 alert"):
            await asyncio.to_thread(served.ask, "/healthz")
