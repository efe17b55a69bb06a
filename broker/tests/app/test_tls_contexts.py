"""A listener's certificates: read from PEM and PKCS12, replaced at run time, and refused with helpful errors."""

import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key, pkcs12

from barnabas_broker.app.tls_contexts import TlsContexts, principal_of
from barnabas_broker.app.wiring import is_open
from barnabas_broker.server.tls_stream import CertificateRefused
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.listeners import parse_principal_rules
from harness.certificates import Authority, Identity

LISTENER = {"listeners": "SSL://:9093", "inter.broker.listener.name": "SSL", "ssl.keystore.type": "PEM"}


UNKNOWN_KEY = "-----BEGIN PRIVATE KEY-----\nMA0CAQAwBgYEKgMEBQQA\n-----END PRIVATE KEY-----\n"
"""A key of the kind 1.2.3.4.5."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def config(**settings: str) -> BrokerConfig:
    return parse_broker_config({**LISTENER, **{name.replace("_", "."): text for name, text in settings.items()}})


def problem(**settings: str) -> str:
    with pytest.raises(InvalidConfig) as refused:
        TlsContexts(config(**settings))
    return str(refused.value)


def as_pkcs12(identity: Identity, file: Path, password: bytes) -> str:
    key = load_pem_private_key(identity.key.encode(), None)
    certificate = x509.load_pem_x509_certificate(identity.certificate.encode())
    encryption = BestAvailableEncryption(password)
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"k", key, certificate, None, encryption))  # type: ignore[arg-type]  # any key
    return str(file)


def test_keys_and_certificates_come_from_files_or_settings(authority: Authority, tmp_path: Path) -> None:
    identity = authority.issue("broker")
    on_one_line = {"ssl_keystore_key": identity.key, "ssl_keystore_certificate_chain": identity.certificate}
    store = as_pkcs12(identity, tmp_path / "store.p12", b"s3cret")
    for settings in (
        {"ssl_keystore_location": str(identity.file)},
        {name: " ".join(text.split("\n")) for name, text in on_one_line.items()},
        {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": store, "ssl_keystore_password": "s3cret"},
    ):
        assert TlsContexts(config(**settings)).server("SSL") is not None


def test_an_error_names_the_unusable_setting_without_its_secrets(authority: Authority, tmp_path: Path) -> None:
    identity = authority.issue("broker")
    store = as_pkcs12(identity, tmp_path / "store.p12", b"s3cret")
    good = str(identity.file)
    assert problem().startswith("ssl.keystore.location: a keystore must be set, because TLS needs a certificate")
    assert (
        problem(ssl_keystore_location="/none")
        == "ssl.keystore.location=/none: the file cannot be read: No such file or directory"
    )
    os.mkfifo(tmp_path / "pipe")
    for endless in ("/dev/zero", str(tmp_path / "pipe")):
        assert "must be a regular file of at most 1048576 bytes" in problem(ssl_keystore_location=endless)
    trusted = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": "-" * 1_000_000}
    assert "must contain at least one certificate" in problem(ssl_keystore_location=good, **trusted)
    assert "one private key in PKCS#8 format" in problem(ssl_keystore_location=str(authority.file))
    wrong = problem(ssl_keystore_type="PKCS12", ssl_keystore_location=store, ssl_keystore_password="wr0ng")
    assert "cannot be read with ssl.keystore.password" in wrong
    assert "wr0ng" not in wrong
    assert "ssl.truststore.location: a truststore must be set, because ssl.client.auth" in problem(
        ssl_keystore_location=good, ssl_client_auth="required"
    )
    assert "TLS_RSA_WITH_AES_128_CBC_SHA is not supported" in problem(
        ssl_keystore_location=good, ssl_cipher_suites="TLS_RSA_WITH_AES_128_CBC_SHA"
    )
    assert "not a regular expression" in problem(ssl_keystore_location=good, ssl_principal_mapping_rules="RULE:(/x/")


def test_the_name_in_a_refused_certificate_cannot_forge_a_log_line(authority: Authority) -> None:
    certificate = ssl.PEM_cert_to_DER_cert(authority.issue("a\nb", "forger").certificate)
    with pytest.raises(CertificateRefused, match=r"CN=a\\nb"):
        principal_of(certificate, parse_principal_rules("RULE:^X$/x/"))


@pytest.mark.parametrize(
    ("settings", "newest", "ciphers"),
    [
        ({}, ssl.TLSVersion.TLSv1_3, 6),
        ({"ssl_enabled_protocols": "TLSv1.2"}, ssl.TLSVersion.TLSv1_2, 6),
        ({"ssl_cipher_suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}, ssl.TLSVersion.TLSv1_2, 1),
    ],
)
def test_only_strong_ciphers_are_allowed(
    authority: Authority, settings: dict[str, str], newest: ssl.TLSVersion, ciphers: int
) -> None:
    contexts = TlsContexts(config(ssl_keystore_location=str(authority.issue("broker").file), **settings))
    server = contexts.server("SSL")
    assert server is not None
    assert (server.context.minimum_version, server.context.maximum_version) == (ssl.TLSVersion.TLSv1_2, newest)
    older = [each for each in server.context.get_ciphers() if each["protocol"] == "TLSv1.2"]
    assert len(older) == ciphers
    assert all(each["aead"] and each["name"].startswith("ECDHE") for each in older)


def test_a_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(bytes.fromhex("feedfeed00000002"))
    refused = problem(ssl_keystore_type="JKS", ssl_keystore_location=str(store), ssl_keystore_password="s3cret")
    assert f"keytool -importkeystore -srckeystore {store} -destkeystore {store}.p12 -deststoretype PKCS12" in refused


def test_a_certificate_is_replaced_only_by_one_with_the_same_subject(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    identity = authority.issue("broker")
    now = config(ssl_keystore_location=str(identity.file))
    contexts = TlsContexts(now)
    first = contexts.server("SSL")
    contexts.refresh(now)
    assert contexts.server("SSL") is first
    authority.issue("broker")
    contexts.refresh(now)
    second = contexts.server("SSL")
    assert second is not first
    authority.issue("stranger", "broker")
    contexts.refresh(now)
    assert contexts.server("SSL") is second
    assert "listener SSL keeps its old certificates, because" in caplog.text
    assert "has the subject CN=stranger" in caplog.text
    for unusable in (authority.issue_printable("bro*er").file.read_text(), UNKNOWN_KEY + identity.certificate):
        identity.file.write_text(unusable)
        caplog.clear()
        contexts.refresh(now)
        assert contexts.server("SSL") is second
        assert "listener SSL keeps its old certificates, because" in caplog.text


def test_a_changed_keystore_is_refused_if_its_subject_differs(authority: Authority) -> None:
    now = config(ssl_keystore_location=str(authority.issue("broker").file))
    contexts = TlsContexts(now)
    contexts.check(now)
    for location, refused in ((authority.issue("stranger").file, True), (authority.issue("broker", "new").file, False)):
        changed = now.with_usable({"listener.name.ssl.ssl.keystore.location": str(location)}, {}).config
        if refused:
            with pytest.raises(InvalidConfig, match=r"listener.name.ssl.ssl.keystore.location=.*ssl.allow.dn.changes"):
                contexts.check(changed)
        else:
            contexts.check(changed)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, True),
        ({"listeners": "PLAINTEXT://10.0.0.1:9092"}, True),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, False),
        ({"listeners": "PLAINTEXT://[::1]:9092"}, False),
        ({"listeners": "PLAINTEXT://localhost:9092"}, False),
        (LISTENER, True),
        ({**LISTENER, "ssl.client.auth": "required"}, False),
    ],
)
def test_a_listener_is_open_if_unauthenticated_clients_can_reach_it(settings: dict[str, str], expected: bool) -> None:
    parsed = parse_broker_config(settings)
    assert is_open(parsed, parsed.listeners.bound[0]) == expected
