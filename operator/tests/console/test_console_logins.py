"""Logins by each mechanism over TLS, and a cluster that knows only certificates."""

import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.console_world import PLAIN
from harness.deadline import PATIENCE_S
from harness.running_console import StartConsole
from harness.server_process import ServerProcess, free_port
from harness.tokens import AUDIENCE, ISSUER, Issuer

TOKENS = "sasl.oauthbearer."


class Tls(NamedTuple):
    """A broker with a listener for logins over TLS and one for certificates, and what clients need for both."""

    process: ServerProcess
    folder: Path
    authority: Authority
    issuer: Issuer
    sasl: str
    certificates: str

    def properties(self, protocol: str, **more: object) -> str:
        given = {"security.protocol": protocol, "ssl.truststore.type": "PEM"}
        given |= {"ssl.truststore.location": str(self.authority.file)}
        given |= {name.replace("_", "."): str(value) for name, value in more.items()}
        return "".join(f"{name}={value}\n" for name, value in given.items())


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    authority, issuer, ports = Authority(folder), Issuer(), (free_port(), free_port())
    (folder / "keys.json").write_bytes(issuer.key_set())
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MTLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").file),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} required user_alice="alice-secret";',
        f"{TOKENS}jwks.endpoint.url": f"file://{folder}/keys.json",
        f"{TOKENS}expected.audience": AUDIENCE,
        f"{TOKENS}expected.issuer": ISSUER,
    }
    addresses = [f"localhost:{port}" for port in ports]
    process = prepare_barnabas(folder, settings, listeners=(f"SASL://{addresses[0]}", f"MTLS://{addresses[1]}"))
    try:
        process.start()
        yield Tls(process, folder, authority, issuer, *addresses)
        process.stop()
    finally:
        process.close()


def test_a_visitor_logs_in_over_tls_by_a_token_or_a_password(tls: Tls, start_console: StartConsole) -> None:
    console = start_console(tls.sasl, properties=tls.properties("SASL_SSL", sasl_mechanism="OAUTHBEARER"))
    visitor, token = console.visitor(), tls.issuer.token("alice", valid_s=3600)
    assert visitor.log_in("", token, "OAUTHBEARER").status == 303
    assert "as the owner of a token" in visitor.get("/topics").text
    days = visitor.json("/")["brokers"][0]["certificate"]["days"]
    assert days > 0
    by_header = console.visitor()
    assert by_header.json("/topics", Authorization=f"Bearer {token}")["rows"] == []
    with_password = console.visitor()
    assert with_password.log_in("alice", "alice-secret", "PLAIN").status == 303
    for refused in (Issuer().token("alice"), tls.issuer.token("alice", valid_s=-60), "no token"):
        answer = console.visitor().log_in("", refused, "OAUTHBEARER")
        assert (answer.status, "the brokers refuse the login" in answer.text) == (401, True), answer.text
    assert token not in console.log()


def test_a_cluster_with_certificates_is_shown_by_the_certificate_of_the_console(
    tls: Tls, start_console: StartConsole
) -> None:
    own = tls.authority.issue("console").file
    mine = tls.properties("SSL", ssl_keystore_type="PEM", ssl_keystore_location=own)
    pages = tls.authority.issue("pages").file
    options = ("--server.tls.cert-file", str(pages), "--server.tls.key-file", str(pages))
    console = start_console(tls.certificates, *options, properties=mine)
    trust = ssl.create_default_context(cafile=str(tls.authority.file))
    address = f"https://localhost:{console.process.port}/topics"
    with urllib.request.urlopen(address, timeout=PATIENCE_S, context=trust) as page:
        assert "as the console&#39;s own account" in page.read().decode()


def test_a_broker_that_another_authority_has_signed_is_refused(tls: Tls, start_console: StartConsole) -> None:
    stranger = Authority(tls.folder, "stranger")
    properties = tls.properties("SASL_SSL").replace(str(tls.authority.file), str(stranger.file))
    answer = start_console(tls.sasl, properties=properties).visitor().log_in("alice", "alice-secret")
    assert (answer.status, "certificate" in answer.text.lower()) == (401, True), answer.text
