"""The files for clients in the Secret of a user."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from declared_users import cluster, user

from barnabas_operator.certificates import Authority, certificates_in, has_issued, renewed_at
from barnabas_operator.planning.users.user_secret import (
    ROTATE,
    SALT,
    ClientsAuthority,
    Endpoint,
    GivenPassword,
    Proof,
    StoredSecret,
    client_files,
    endpoint_of,
    given_password_problem,
    is_due,
    issue,
    known_password,
    marks_of,
    password_of,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LISTENERS = [
    {"name": "open", "port": 9092},
    {"name": "safe", "port": 9094, "tls": True, "authentication": {"type": "scram-sha-512"}},
]


@pytest.mark.parametrize(
    ("mechanism", "module"), [("SCRAM-SHA-512", "scram.ScramLoginModule"), ("PLAIN", "plain.PlainLoginModule")]
)
def test_a_password_is_written_as_each_client_reads_it(mechanism: str, module: str) -> None:
    endpoint = Endpoint("here:9094", is_tls=True, fits=True, mechanism=mechanism)
    files = client_files(user(), endpoint, Proof("CA\nPEM\n", 'a"b\\c'))
    jaas = f'org.apache.kafka.common.security.{module} required username="alice" password="a\\"b\\\\c";'
    assert files["sasl.jaas.config"].decode() == jaas
    properties = files["client.properties"].decode().splitlines()
    doubled = jaas.replace("\\", "\\\\")
    assert f"sasl.jaas.config={doubled}" in properties
    assert f"sasl.mechanism={mechanism}" in properties
    assert f"sasl.mechanisms={mechanism}" in files["kcat.conf"].decode().splitlines()
    assert "ssl.truststore.certificates=CA\\nPEM\\n" in properties
    assert 'sasl.password=a"b\\c' in files["kcat.conf"].decode().splitlines()
    assert "ssl.ca.location=ca.crt" in files["kcat.conf"].decode().splitlines()
    assert json.loads(files["librdkafka.json"]) == {
        "bootstrap.servers": "here:9094",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
        "ssl.ca.pem": "CA\nPEM\n",
    }
    assert sorted(files) == [
        "ca.crt",
        "client.properties",
        "kcat.conf",
        "librdkafka.json",
        "password",
        "sasl.jaas.config",
    ]


def test_a_user_gets_the_first_listener_that_accepts_its_authentication() -> None:
    of = cluster(listeners=LISTENERS)
    assert endpoint_of(of, user(), "any:1") == Endpoint("any:1", True, True, "SCRAM-SHA-512")
    assert endpoint_of(of, user(kind="tls"), "any:1") == Endpoint("any:1", is_tls=False, fits=False)


def test_a_user_with_a_password_gets_a_plain_listener_if_none_has_its_type() -> None:
    plain = {"name": "old", "port": 9095, "tls": True, "authentication": {"type": "plain"}}
    only = cluster(listeners=[LISTENERS[0], plain])
    assert endpoint_of(only, user(), "any:1") == Endpoint("any:1", True, True, "PLAIN")
    assert endpoint_of(only, user(kind="scram-sha-256"), "any:1") == Endpoint("any:1", True, True, "PLAIN")
    assert endpoint_of(only, user(kind="tls"), "any:1") == Endpoint("any:1", is_tls=False, fits=False)
    both = cluster(listeners=[plain, *LISTENERS])
    assert endpoint_of(both, user(), "any:1").mechanism == "SCRAM-SHA-512"
    assert endpoint_of(both, user(kind="scram-sha-256"), "any:1").mechanism == "PLAIN"


def test_a_certificate_is_signed_by_the_clients_authority_and_renewed_at_two_thirds() -> None:
    signer = Authority.create("clients", NOW)
    authority = ClientsAuthority(signer.pem.key, signer.pem.certificate)
    has = issue("alice", authority, NOW_MS, "geheim")
    (made,) = certificates_in(has.certificate)
    assert has_issued(signer.certificate, made)
    assert load_pkcs12(has.keystore, b"geheim").cert is not None
    assert not is_due(has.certificate, "alice", authority, NOW_MS)
    due_ms = int(renewed_at(made).timestamp() * 1000)
    assert not is_due(has.certificate, "alice", authority, due_ms - 1000)
    assert is_due(has.certificate, "alice", authority, due_ms)
    assert is_due(has.certificate, "bob", authority, NOW_MS)
    other = Authority.create("clients", NOW + timedelta(days=1)).pem
    assert is_due(has.certificate, "alice", ClientsAuthority(other.key, other.certificate), NOW_MS)
    both = ClientsAuthority(other.key, other.certificate + signer.pem.certificate)
    assert is_due(has.certificate, "alice", both, NOW_MS), "another key signs, and brokers soon forget the former"
    ahead = ClientsAuthority(signer.pem.key, signer.pem.certificate + other.certificate)
    assert not is_due(has.certificate, "alice", ahead, NOW_MS)


def test_a_password_stays_until_another_one_is_requested() -> None:
    made = iter(("new", "newer"))
    stored = StoredSecret({"password": b"old"}, {ROTATE: "1"}, is_own=True)

    def asked(value: str | None) -> str:
        annotated = user()
        if value is not None:
            annotated.metadata.annotations[ROTATE] = value
        return password_of(annotated, stored, None, lambda: next(made))

    assert [asked("1"), asked(None), asked("2")] == ["old", "old", "new"]
    assert password_of(user(), None, None, lambda: next(made)) == "newer"
    marks = marks_of(user(), stored, lambda: "salt")
    assert known_password("old", marks).password_id != known_password("new", marks).password_id


def test_a_rotation_waits_until_the_brokers_have_the_stored_password_with_the_salt_of_the_secret() -> None:
    marks = {ROTATE: "1", SALT: "salt"}
    stored, known = StoredSecret({"password": b"old"}, marks, is_own=True), known_password("old", marks)
    assert known.salt not in (b"salt", known_password("old", {SALT: "other"}).salt)
    hour = {"type": "scram-sha-512", "password": {"overlapSeconds": 3600}}

    def asked(password_id: str, authentication: object = hour, given: GivenPassword | None = None) -> tuple[str, str]:
        annotated = user(status={"passwordId": password_id}, authentication=authentication)
        annotated.metadata.annotations[ROTATE] = "2"
        return password_of(annotated, stored, given, lambda: "new"), marks_of(annotated, stored, str)[ROTATE]

    assert asked(known.earlier_id) == asked(f"other-{known.earlier_id}") == ("old", "1")
    assert asked(known.earlier_id, given=GivenPassword("theirs")) == ("old", "1")
    assert asked(known.password_id) == ("new", "2")
    assert asked(known.password_id, given=GivenPassword("theirs")) == ("theirs", "2")
    assert asked(known.earlier_id, {"type": "scram-sha-512"}) == ("new", "2")


@pytest.mark.parametrize("text", [None, "", " a", "a\nb", "ü", "a" * 256])
def test_a_given_password_that_clients_cannot_send_is_refused(text: str | None) -> None:
    ref = {"valueFrom": {"secretKeyRef": {"name": "theirs", "key": "pw"}}}
    given = user(authentication={"type": "scram-sha-512", "password": ref})
    problem = given_password_problem(given, GivenPassword(text))
    assert problem is not None
    assert problem.reason == "NoPassword"
    assert "key pw of Secret theirs" in problem.message
    assert given_password_problem(given, GivenPassword("a b")) is None
