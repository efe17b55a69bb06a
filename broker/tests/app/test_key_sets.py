"""JWK sets are read from files and over HTTP, with a limit on their size, and only from the URL of the settings."""

import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from barnabas_broker.app.broker import KeySets
from barnabas_broker.app.key_set_reader import read_key_set, trusting
from barnabas_broker.security.sasl.key_set import KEY_SET_BYTES_MAX
from barnabas_broker.security.sasl.listener_mechanisms import OAuthSettings
from barnabas_broker.security.sasl.token_keys import FetchTimes, KeysUnavailable, TokenRules
from barnabas_core.config.definitions import InvalidConfig
from harness.certificates import Authority, Identity
from harness.manual_loop_clock import ManualLoopClock
from harness.tokens import Issuer

KEYS = Issuer().key_set()
CONTEXT = ssl.create_default_context()


class Handler(BaseHTTPRequestHandler):
    """Responds with keys, with too many bytes, with a redirect to the keys, or with bytes that never end."""

    def do_GET(self) -> None:
        status = {"/elsewhere": 302, "/none": 404}.get(self.path, 200)
        self.send_response(status)
        self.send_header("Location", "/keys")
        self.end_headers()
        with suppress(ConnectionError):
            while self.path == "/slow":
                self.wfile.write(b" ")
                time.sleep(0.01)
        self.wfile.write(b" " * KEY_SET_BYTES_MAX + KEYS if self.path == "/large" else KEYS)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(secured: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve at a free port; yield the port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if secured is not None:
            server.socket = secured.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured_port(authority: Authority) -> Iterator[int]:
    with served(serving(authority.issue("login"))) as port:
        yield port


def serving(identity: Identity) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.file)
    return context


def settings(url: str, **trust: str) -> OAuthSettings:
    return OAuthSettings(url, trust, FetchTimes(1, 1, 1), TokenRules((), None, 0))


def test_keys_are_read_from_a_url_and_from_a_file(url: str, tmp_path: Path) -> None:
    (file := tmp_path / "the keys.json").write_bytes(KEYS)
    for each in (f"{url}/keys", f"file://{tmp_path}/the%20keys.json", f"file:{file}"):
        assert [key.key_id for key in read_key_set(each, CONTEXT, 30)] == ["one"]


@pytest.mark.parametrize("path", ["/elsewhere", "/none", "/large", "[/"])
def test_a_redirect_an_error_or_a_large_response_gives_no_keys(url: str, path: str) -> None:
    with pytest.raises(KeysUnavailable):
        read_key_set(f"{url}{path}", CONTEXT, 30)


def trusting_only(authority: Authority) -> ssl.SSLContext:
    """Return the TLS context for a JAAS line with this truststore."""
    return trusting({"ssl.truststore.type": "PEM", "ssl.truststore.location": str(authority.file)})


def test_keys_are_read_over_https_only_from_a_trusted_server(
    secured_port: int, authority: Authority, tmp_path: Path
) -> None:
    context = trusting_only(authority)
    assert [key.key_id for key in read_key_set(f"https://localhost:{secured_port}/keys", context, 30)] == ["one"]
    for path in ("/elsewhere", "/none", "/large"):
        with pytest.raises(KeysUnavailable):
            read_key_set(f"https://localhost:{secured_port}{path}", context, 30)
    with pytest.raises(KeysUnavailable, match=r"self-signed certificate|unable to get local issuer"):
        read_key_set(f"https://localhost:{secured_port}/keys", trusting_only(Authority(tmp_path, "other")), 30)


def test_a_server_with_an_expired_certificate_gives_no_keys(authority: Authority) -> None:
    refused = pytest.raises(KeysUnavailable, match="certificate has expired")
    with served(serving(authority.issue("expired", days=-1))) as port, refused:
        read_key_set(f"https://localhost:{port}/keys", trusting_only(authority), 30)


def test_reading_a_response_that_never_ends_times_out(url: str) -> None:
    with pytest.raises(KeysUnavailable):
        read_key_set(f"{url}/slow", CONTEXT, 1)


async def test_loading_fails_without_the_key_file_but_not_without_the_url() -> None:
    key_sets = KeySets(ManualLoopClock())
    keys = key_sets.open(settings("http://127.0.0.1:1/keys"))
    await key_sets.load()
    assert keys.current == ()
    key_sets.open(settings("file:///no/such/file"))
    with pytest.raises(KeysUnavailable, match="No such file"):
        await key_sets.load()


def test_the_error_for_a_missing_truststore_names_the_setting() -> None:
    trust = {"ssl.truststore.location": "/no/such/file", "ssl.truststore.type": "PEM"}
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.location"):
        KeySets(ManualLoopClock()).open(settings("https://127.0.0.1:1/keys", **trust))
