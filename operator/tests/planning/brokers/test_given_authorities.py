"""Authorities that somebody gave: which Secrets are taken, and which are refused."""

import datetime as dt
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store

from barnabas_operator.certificates.authority import Authority, Pem, certificates_in, pem_of
from barnabas_operator.planning.brokers.authorities import AuthorityPlan, AuthoritySecrets, Data
from barnabas_operator.planning.brokers.given_authorities import plan_given
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.users.user_certificate import clients_authority

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
NAME = "one-cluster-ca"
KEY = rsa.generate_private_key(65537, 2048)
OWN = Authority.create("own", NOW).pem


def given(*, ca: bool = True, issuer: str = "mine", days: int = 30) -> Pem:
    """An authority as other tools make it: RSA, with an identifier of its key that is not the hash of it."""
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in ("mine", issuer)]
    builder = x509.CertificateBuilder(names[1], names[0], KEY.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW - DAY).not_valid_after(NOW + days * DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier(b"of another tool"), critical=False)
    usage = x509.KeyUsage(False, False, False, False, False, ca, ca, False, False)
    certificate = builder.add_extension(usage, critical=True).sign(KEY, hashes.SHA256())
    key = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pem(key, pem_of([certificate]))


def as_strimzi(made: Pem) -> AuthoritySecrets:
    return AuthoritySecrets({"ca.key": made.key.encode()}, {"ca.crt": (OWN.certificate + made.certificate).encode()})


def as_cert_manager(made: Pem) -> AuthoritySecrets:
    certificate = made.certificate.encode()
    return AuthoritySecrets({"tls.key": made.key.encode(), "tls.crt": certificate, "ca.crt": certificate}, None)


def planned(found: AuthoritySecrets) -> AuthorityPlan | Refusal:
    return plan_given(NAME, found, NOW, lambda: "a password", makes_certificate=found.certificate is None)


@pytest.mark.parametrize(("secrets", "theirs"), [(as_strimzi, {NAME, f"{NAME}-cert"}), (as_cert_manager, {NAME})])
def test_a_given_authority_signs_what_its_certificate_verifies(
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
def test_what_cannot_be_the_authority_is_refused_with_what_is_allowed(why: str) -> None:
    refusal = planned(REFUSED[why])
    assert isinstance(refusal, Refusal), refusal
    assert f"spec.clusterCa.generateCertificateAuthority is false, but {why}" in refusal.message
    assert "; provide ca.key in Secret one-cluster-ca and ca.crt in Secret one-cluster-ca-cert, or" in refusal.message
