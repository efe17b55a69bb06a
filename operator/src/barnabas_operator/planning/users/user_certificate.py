"""The certificate of a user: its content, and whether it must be replaced."""

from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from barnabas_operator.certificates.authority import Authority, Pem, certificates_in, is_current, pem_of
from barnabas_operator.planning.brokers.given_authorities import signer_first
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.time_text import utc_moment

NO_AUTHORITY: Final = "NoAuthority"


class ClientsAuthority(NamedTuple):
    """The authority for a Cluster's users: the key that signs, and the certificates that brokers trust, as PEM.

    The first certificate belongs to the key.
    """

    key: str
    trusted: str


class UserCertificate(NamedTuple):
    """A user's certificate and key in PEM format, and a PKCS12 keystore with both and the trusted certificates."""

    certificate: str
    key: str
    keystore: bytes
    keystore_password: str


def clients_authority(key: str, trusted: str) -> ClientsAuthority:
    """Return the authority with `trusted` reordered, so that the certificate of the private key `key` comes first.

    The order is unchanged if `key` or `trusted` is invalid, or if no certificate belongs to `key`.
    """
    try:
        return ClientsAuthority(key, pem_of(signer_first(key, certificates_in(trusted))))
    except ValueError:
        return ClientsAuthority(key, trusted)


def is_due(certificate: str, username: str, authority: ClientsAuthority, now_ms: int) -> bool:
    """Return whether the user needs a new certificate.

    A certificate is replaced at two thirds of its lifetime, when the authority signs with a new key, and if it is
    invalid or names another user.
    """
    try:
        (found,) = certificates_in(certificate)
        trusted = certificates_in(authority.trusted)
    except ValueError:
        return True
    names = [each.value for each in found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return names != [username] or not is_current(found, trusted[0], utc_moment(now_ms))


def issue(username: str, authority: ClientsAuthority, now_ms: int, password: str) -> UserCertificate:
    """Return a new certificate for the user, signed by the authority. Raise ValueError if the authority is invalid."""
    pem = Authority(Pem(authority.key, authority.trusted), utc_moment(now_ms)).issue(username)
    key = load_pem_private_key(pem.key.encode(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey), "Authority.issue must return an elliptic curve key"
    (certificate,), trusted = certificates_in(pem.certificate), certificates_in(authority.trusted)
    encryption = BestAvailableEncryption(password.encode())
    keystore = serialize_key_and_certificates(username.encode(), key, certificate, trusted, encryption)
    return UserCertificate(pem.certificate, pem.key, keystore, password)


def no_authority(cluster: str, missing: str) -> Refusal:
    """Return the Refusal for a tls user whose certificate cannot be signed; `missing` says what is missing."""
    why = f"Cluster {cluster} has no CA for client certificates: {missing}"
    return Refusal(NO_AUTHORITY, f"{why}; set the type of spec.authentication to scram-sha-512")
