"""Kafka's client properties as our commands take them, and the ones that they refuse."""

from pathlib import Path

import pytest

from barnabas_lag.app.options import parse
from harness.certificates import Authority

SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="geheim";'
SASL = f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM}\n"


def given(folder: Path, text: str) -> list[str]:
    (file := folder / "client.properties").write_text(text)
    return ["--bootstrap", "a:1", "--command-config", str(file)]


def test_users_and_certificates_are_taken_and_other_properties_ignored(tmp_path: Path) -> None:
    security = parse(given(tmp_path, SASL + "client.id=x\n")).security
    assert security.authenticates
    assert security.settings() == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "geheim",
    }
    authority = Authority(tmp_path / "authority")
    key = f"ssl.keystore.type=PEM\nssl.keystore.location={authority.issue('client').file}\n"
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
    names = "ssl.endpoint.identification.algorithm=\n"
    security = parse(given(tmp_path, f"security.protocol=SSL\n{key}{trust}{names}")).security
    assert security.authenticates
    assert security.settings() == {
        "security_protocol": "SSL",
        "ssl_check_hostname": False,
        "ssl_cafile": str(authority.file),
        "ssl_certfile": str(tmp_path / "authority/client.pem"),
        "ssl_keyfile": str(tmp_path / "authority/client.pem"),
        "ssl_password": "",
    }


def inline(pem: str) -> str:
    return pem.replace("\n", "\\n")


def test_certificates_and_keys_may_be_in_the_properties_as_the_operator_writes_them(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    pem = authority.issue("client").file.read_text()
    trust = f"ssl.truststore.type=PEM\nssl.truststore.certificates={inline(authority.file.read_text())}\n"
    key = f"ssl.keystore.type=PEM\nssl.keystore.key={inline(pem)}\nssl.keystore.certificate.chain={inline(pem)}\n"
    security = parse(given(tmp_path, f"security.protocol=SSL\n{trust}{key}")).security
    assert security.authenticates
    settings = security.settings()
    assert settings.keys() == {"security_protocol", "ssl_context"}
    assert len(settings["ssl_context"].get_ca_certs()) == 1
    assert settings["ssl_context"].check_hostname
    security = parse(given(tmp_path, f"security.protocol=SSL\n{trust}")).security
    assert not security.authenticates


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.certificates=x",
            "ssl.truststore.certificates must be certificates in PEM: ",
        ),
        (
            "security.protocol=SSL\nssl.keystore.type=PEM\nssl.keystore.key=x",
            "ssl.keystore.certificate.chain is missing; it must have the certificate of ssl.keystore.key, in PEM",
        ),
        (
            "security.protocol=SSL\nssl.truststore.certificates=x\nssl.truststore.location=y",
            "ssl.truststore.location and ssl.truststore.certificates must not be set together",
        ),
        ("security.protocol=TLS", "security.protocol=TLS; allowed: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (SASL.replace("SCRAM-SHA-512", "GSSAPI"), "sasl.mechanism=GSSAPI; allowed: PLAIN, SCRAM-SHA-256, SCRAM"),
        (
            SASL.replace("SCRAM-SHA-512", "PLAIN"),
            "sasl.jaas.config has the login module of SCRAM, but sasl.mechanism=PLAIN",
        ),
        (SASL.replace('password="geheim"', ""), 'sasl.jaas.config has no password; add password="..."'),
        ("security.protocol=SASL_SSL", "sasl.mechanism is missing; allowed: PLAIN"),
        ("ssl.cipher.suites=x", "ssl.cipher.suites is not supported; the supported properties for security are"),
        ("security.protocol=SSL\nssl.truststore.location=a.jks", "ssl.truststore.type=JKS, the default; allowed: PEM;"),
        (
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/nowhere",
            "ssl.truststore.location=/nowhere cannot be read: No such file or directory; the file must have",
        ),
        (
            "security.protocol=SSL\nssl.endpoint.identification.algorithm=http",
            "ssl.endpoint.identification.algorithm=http; allowed: https, an empty value",
        ),
    ],
)
def test_an_unusable_property_is_refused_with_the_allowed_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(given(tmp_path, text))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert why in said
    assert "geheim" not in said


def test_command_config_must_be_a_file_and_excludes_other_security_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, why in (
        (
            ["--bootstrap", "a:1", "--command-config", "/nowhere"],
            "/nowhere is not a file with properties of Kafka clients",
        ),
        ([*given(tmp_path, SASL), "--tls.enabled"], "--command-config must not be combined with --tls.enabled"),
    ):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert why in capsys.readouterr().err
