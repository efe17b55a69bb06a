"""The exporter's options for connections: IPv6 addresses, TLS and SASL."""

import errno
import gc
import socket
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from barnabas_kafka.security import SecurityFileError
from barnabas_lag.app.main import PageServer, make_pages
from barnabas_lag.app.options import Listener, listener, parse
from barnabas_web.visitors import Protection
from harness.deadline import PATIENCE_S
from harness.require import missing

NO_IPV6 = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL})
SASL = ("--sasl.enabled", "--sasl.username", "reader")


def test_ipv6_addresses_are_accepted_in_brackets() -> None:
    assert parse(["--bootstrap", "[::1]:9092,kafka.example:9092"]).bootstrap == "[::1]:9092,kafka.example:9092"
    assert listener("[fe80::1]:9308") == Listener("fe80::1", 9308)
    assert listener(":9308") == Listener("", 9308)


def test_pages_are_served_at_an_ipv6_address() -> None:
    try:
        server = PageServer(Listener("::1", 0), make_pages(CollectorRegistry(), bytes, lambda: None), Protection())
    except OSError as error:
        if error.errno not in NO_IPV6:
            raise
        missing(f"[::1] cannot be bound: {error}")
    with urllib.request.urlopen(f"http://[::1]:{server.port}/healthz", timeout=PATIENCE_S) as answer:
        assert answer.read() == b"ok\n"
    server.close()


def test_the_server_closes_silent_connections_when_it_stops(caplog: pytest.LogCaptureFixture) -> None:
    server = PageServer(Listener("127.0.0.1", 0), make_pages(CollectorRegistry(), bytes, lambda: None), Protection())
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as silent:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz", timeout=PATIENCE_S) as answer:
            assert answer.status == 200
        server.close()
        gc.collect()
        assert silent.recv(1) == b""
    assert not caplog.records


def test_sasl_and_tls_are_used_only_if_they_are_enabled(tmp_path: Path) -> None:
    (password := tmp_path / "password").write_text("geheim\n")
    assert parse(["--bootstrap", "a:1"]).security.settings() == {"security_protocol": "PLAINTEXT"}
    given = ["--bootstrap", "a:1", *SASL, "--sasl.password-file", str(password), "--sasl.mechanism", "scram-sha512"]
    assert parse(given).security.settings() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "reader",
        "sasl_plain_password": "geheim",
    }
    assert parse([*given, "--tls.enabled"]).security.settings()["security_protocol"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--tls.ca-file", "ca.crt"), "--tls.ca-file is ca.crt, but --tls.enabled is missing"),
        (
            ("--tls.enabled", "--tls.ca-file", "/nowhere"),
            "--tls.ca-file is /nowhere, which cannot be used: No such file or directory; name",
        ),
        (("--tls.enabled", "--tls.key-file", "/k"), "one of --tls.cert-file and --tls.key-file is missing"),
        (("--sasl.username", "reader"), "--sasl.username is reader, but --sasl.enabled is missing"),
        (
            ("--server.token-file", "/t"),
            "--server.token-file=/t: must be set together with --server.tls.cert-file, because without TLS",
        ),
        (("--server.tls.cert-file", "/nowhere"), "--server.tls.cert-file=/nowhere: must be a file that can be read"),
        (SASL, "--sasl.enabled needs --sasl.password-file"),
        (
            (*SASL, "--sasl.password-file", "/nowhere"),
            "the password file /nowhere cannot be read: No such file or directory; name",
        ),
    ],
)
def test_incomplete_options_and_unreadable_files_are_refused(
    capsys: pytest.CaptureFixture[str], options: tuple[str, ...], why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--bootstrap", "a:1", *options])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_the_password_file_is_read_again_for_each_connection(tmp_path: Path) -> None:
    (password := tmp_path / "password").write_text("old")
    security = parse(["--bootstrap", "a:1", *SASL, "--sasl.password-file", str(password)]).security
    password.write_text("new")
    assert security.settings()["sasl_plain_password"] == "new"
    password.unlink()
    with pytest.raises(SecurityFileError, match="name a file that contains the password"):
        security.settings()
