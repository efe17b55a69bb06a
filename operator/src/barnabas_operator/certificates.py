"""Certificate authorities (CAs), the certificates that they issue, and truststores."""

import datetime as dt
import ipaddress
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
LIFETIME_DAYS: Final = 365
ALIAS: Final = "ca"
EARLY: Final = dt.timedelta(minutes=10)
"""The time by which a certificate's notBefore is earlier than its creation, because clocks differ."""

_PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


class Pem(NamedTuple):
    """A private key (PKCS#8) and its certificate."""

    key: str
    certificate: str

    @property
    def both(self) -> str:
        """The key and the certificate as one PEM text, as in Kafka's PEM keystores."""
        return self.key + self.certificate


def _private_key(text: str) -> PrivateKeyTypes:
    """Return a private key (PEM). Raise ValueError if it is invalid or encrypted."""
    try:
        return load_pem_private_key(text.encode(), password=None)
    except TypeError as error:  # The key is encrypted.
        raise ValueError("the private key is encrypted; allowed: a key without a password") from error


class Authority:
    """The CA of a cluster, which issues certificates for brokers and for clients."""

    def __init__(self, pem: Pem, now: dt.datetime) -> None:
        """Read the key and the first certificate of `pem`.

        Raise ValueError if they are invalid, encrypted or do not belong together.
        """
        key = _private_key(pem.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise ValueError("the key of the authority must be an RSA key or an elliptic curve key")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(pem.certificate.encode())
        if self._certificate.public_key() != key.public_key():
            raise ValueError("the key of the authority does not belong to its certificate")
        self._now = now
        self.pem = pem

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> Self:
        """Return a new CA with a self-signed certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(_pem(key, _own_certificate(key, _subject(name), now)), now)

    def renewed(self) -> Pem:
        """Return the CA's key with a new self-signed certificate, which has the CA's subject."""
        return Pem(self.pem.key, pem_of([_own_certificate(self._key, self._certificate.subject, self._now)]))

    @staticmethod
    def public_key_of(key: str) -> object:
        """Return the public key of a private key (PEM). Raise ValueError if the private key is invalid or encrypted."""
        return _private_key(key).public_key()

    @property
    def certificate(self) -> x509.Certificate:
        """Return the CA's own certificate."""
        return self._certificate

    def issue(self, common_name: str, hosts: Collection[str] = (), organization: str = "") -> Pem:
        """Return a new key and a client certificate, which is also a server certificate if `hosts` are given."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject, issuer = _subject(common_name, organization), self._certificate.subject
        identifier = _key_identifier(self._certificate)
        builder = _builder(subject, issuer, key.public_key(), identifier, *self._lifetime())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False
            )
        return _pem(key, builder.sign(self._key, hashes.SHA256()))

    def _lifetime(self) -> tuple[dt.datetime, dt.datetime]:
        """Return notBefore and notAfter of a certificate that is issued now, within those of the CA's own certificate.

        A certificate with an earlier notBefore than the CA's certificate would be renewed at once (`is_current`).
        """
        begin, end = self._certificate.not_valid_before_utc, self._certificate.not_valid_after_utc
        return max(self._now - EARLY, begin), min(self._now + dt.timedelta(days=LIFETIME_DAYS), end)


def is_current(certificate: x509.Certificate, authority: x509.Certificate, now: dt.datetime) -> bool:
    """True if `authority` has issued the certificate, and the certificate need not be renewed yet.

    A certificate that is older than the CA's own certificate must be renewed.
    """
    is_older = certificate.not_valid_before_utc < authority.not_valid_before_utc
    return has_issued(authority, certificate) and not is_older and now < renewed_at(certificate)


def has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """True if the key of `authority` has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def certificates_in(pem: str) -> Sequence[x509.Certificate]:
    """Return the certificates of a PEM text in their order. Raises ValueError if there is none, or one is invalid."""
    return x509.load_pem_x509_certificates(pem.encode())


def pem_of(certificates: Collection[x509.Certificate]) -> str:
    """Return certificates as one PEM text."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def pkcs12_of(certificates: Collection[x509.Certificate], password: str) -> bytes:
    """Return a PKCS12 truststore for Java clients that cannot read PEM; each certificate has a different alias."""
    named = [
        PKCS12Certificate(each, f"{ALIAS}-{number}".removesuffix("-0").encode())
        for number, each in enumerate(certificates)
    ]
    return serialize_java_truststore(named, BestAvailableEncryption(password.encode()))


def hosts_of(certificate: x509.Certificate) -> frozenset[str]:
    """Return the host names and addresses in a certificate's subjectAltName."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def canonical_host(host: str) -> str:
    """Return a host name unchanged, and an IP address without brackets in the canonical form of `hosts_of`."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host


def renewed_at(certificate: x509.Certificate) -> dt.datetime:
    """Return the time when a certificate must be renewed, after two thirds of its lifetime."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _own_certificate(key: _PrivateKey, name: x509.Name, now: dt.datetime) -> x509.Certificate:
    until, identifier = now + dt.timedelta(days=AUTHORITY_DAYS), _identifier_of(key.public_key())
    builder = _builder(name, name, key.public_key(), identifier, now - EARLY, until)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return builder.sign(key, hashes.SHA256())


def _identifier_of(key: _PublicKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)


def _key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    """Return the authorityKeyIdentifier for certificates that this CA issues.

    The identifier is the CA's subjectKeyIdentifier, or else is computed from the CA's public key.
    """
    try:
        found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key = authority.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey), "the key must be RSA or elliptic curve"
        return _identifier_of(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found)


def _pem(key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Pem:
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return Pem(text, pem_of([certificate]))


def _subject(common_name: str, organization: str = "") -> x509.Name:
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: _PublicKey,
    issuer_key: x509.AuthorityKeyIdentifier,
    begin: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(issuer_key, critical=False)
    )
