"""Authorities that users provide: the Secrets that are accepted, and those that are refused."""

import datetime as dt
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store

from barnabas_operator.certificates import Authority, Pem, certificates_in, is_current, pem_of
from barnabas_operator.planning.brokers.authorities import AuthorityPlan, AuthoritySecrets, Data, plan_given
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.users.user_secret import clients_authority, is_due, issue

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
NAME = "one-cluster-ca"
KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
AS_CERT_MANAGER_HAS_IT: dict[str, tuple[ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, PrivateFormat]] = {
    "EC PRIVATE KEY": (EC_KEY, PrivateFormat.TraditionalOpenSSL),
    "RSA PRIVATE KEY": (KEY, PrivateFormat.TraditionalOpenSSL),
    "PRIVATE KEY": (EC_KEY, PrivateFormat.PKCS8),
}
OWN = Authority.create("own", NOW).pem


def given(*, ca: bool = True, issuer: str = "mine", days: int = 30) -> Pem:
    """Return an authority as other tools create it: RSA, with a key identifier that is not the key's hash."""
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("mine", issuer)]
    builder = x509.CertificateBuilder(names[1], names[0], KEY.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW - DAY).not_valid_after(NOW + days * DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier(b"of another tool"), critical=False)
    usage = x509.KeyUsage(False, False, False, False, False, ca, ca, False, False)
    certificate = builder.add_extension(usage, critical=True).sign(KEY, hashes.SHA256())
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pem(key, pem_of([certificate]))


def by_cert_manager(head: str, begin: dt.datetime) -> Pem:
    """An authority as cert-manager 1.21.2 makes it: valid from that second, without an identifier of its issuer."""
    key, form = AS_CERT_MANAGER_HAS_IT[head]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(begin).not_valid_after(begin + 90 * DAY)
    usage = x509.KeyUsage(True, False, True, False, False, True, False, False, False)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    return Pem(key.private_bytes(Encoding.PEM, form, NoEncryption()).decode(), pem_of([certificate]))


def as_strimzi(made: Pem) -> AuthoritySecrets:
    return AuthoritySecrets({"ca.key": made.key.encode()}, {"ca.crt": (OWN.certificate + made.certificate).encode()})


def as_cert_manager(made: Pem) -> AuthoritySecrets:
    certificate = made.certificate.encode()
    return AuthoritySecrets({"tls.key": made.key.encode(), "tls.crt": certificate, "ca.crt": certificate}, None)


def planned(found: AuthoritySecrets) -> AuthorityPlan | Refusal:
    return plan_given(NAME, found, NOW, lambda: "a password", makes_certificate=found.certificate is None)


@pytest.mark.parametrize(("secrets", "theirs"), [(as_strimzi, {NAME, f"{NAME}-cert"}), (as_cert_manager, {NAME})])
def test_a_provided_authority_signs_certificates_that_verify_against_it(
    secrets: Callable[[Pem], AuthoritySecrets], theirs: set[str]
) -> None:
    made = given()
    plan = planned(secrets(made))
    assert isinstance(plan, AuthorityPlan), plan
    assert plan.given == theirs
    assert plan.trusted.startswith(made.certificate)
    issued = certificates_in(plan.signer.issue("brokers", ["one.example.org"]).certificate)
    store = Store(list(certificates_in(made.certificate)))
    verifier = PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName("one.example.org"))
    assert verifier.verify(issued[0], [])
    users = clients_authority(made.key, plan.certificate["ca.crt"].decode())
    assert users.trusted.startswith(made.certificate)


@pytest.mark.parametrize("head", AS_CERT_MANAGER_HAS_IT)
def test_certificates_are_issued_again_only_after_the_authority_is_renewed(
    head: str,
) -> None:
    first, renewed = (by_cert_manager(head, begin) for begin in (NOW, NOW + DAY))
    assert first.key.startswith(f"-----BEGIN {head}-----\n")
    plan = planned(as_cert_manager(first))
    assert isinstance(plan, AuthorityPlan), plan
    (issued,) = certificates_in(plan.signer.issue("brokers").certificate)
    (latest,) = certificates_in(renewed.certificate)
    assert is_current(issued, plan.signer.certificate, NOW)
    assert not is_current(issued, latest, NOW + DAY)


def test_a_users_certificate_is_not_due_right_after_the_authority_was_created() -> None:
    made, now_ms = by_cert_manager("EC PRIVATE KEY", NOW), int(NOW.timestamp() * 1000)
    authority = clients_authority(made.key, made.certificate)
    alice = issue("alice", authority, now_ms, "a password")
    assert not is_due(alice.certificate, "alice", authority, now_ms)


def with_key(key: str) -> Data:
    return {"ca.key": key.encode()}


MADE = given()
REFUSED = {
    "Secret one-cluster-ca is missing": AuthoritySecrets(None, None),
    "ca.key of Secret one-cluster-ca is missing": AuthoritySecrets({}, None),
    "ca.crt of Secret one-cluster-ca-cert is missing": AuthoritySecrets(with_key(MADE.key), None),
    "none of the certificates belongs to the private key": as_strimzi(
        Pem(Authority.create("a", NOW).pem.key, MADE.certificate)
    ),
    "the certificate CN=mine is not the certificate of an authority": as_strimzi(given(ca=False)),
    "the certificate CN=mine is signed by another authority": as_strimzi(given(issuer="of all")),
    "the certificate CN=mine is valid only from 2025-12-31": as_strimzi(given(days=0)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_an_unusable_authority_is_refused_with_what_is_allowed(why: str) -> None:
    refusal = planned(REFUSED[why])
    assert isinstance(refusal, Refusal), refusal
    assert f"spec.clusterCa.generateCertificateAuthority is false, but {why}" in refusal.message
    assert "; provide ca.key in Secret one-cluster-ca and ca.crt in Secret one-cluster-ca-cert, or" in refusal.message
