"""A certificate authority, and the certificates that it issues: keys and certificates as PEM."""

import datetime as dt
import ipaddress
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
LIFETIME_DAYS: Final = 365
EARLY: Final = dt.timedelta(minutes=10)
"""A certificate holds some minutes before it is made: clocks differ."""


class Pem(NamedTuple):
    """A private key (PKCS#8) and its certificate."""

    key: str
    certificate: str

    @property
    def both(self) -> str:
        """The two in one file, as Kafka has them."""
        return self.key + self.certificate


class Authority:
    """The authority of a cluster: its certificates serve as a server's and as a client's."""

    def __init__(self, pem: Pem, now: dt.datetime) -> None:
        """Read the key, and its certificate, which may be the first of several. Raises ValueError."""
        key = load_pem_private_key(pem.key.encode(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority must be one of an elliptic curve")
        self._key = key
        self._certificate = x509.load_pem_x509_certificate(pem.certificate.encode())
        if self._certificate.public_key() != key.public_key():
            raise ValueError("the key of the authority is not that of its certificate")
        self._now = now
        self.pem = pem

    @classmethod
    def create(cls, name: str, now: dt.datetime) -> Self:
        """Return a new one, whose certificate it has signed itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        until = now + dt.timedelta(days=AUTHORITY_DAYS)
        builder = _builder(subject, subject, key.public_key(), key.public_key(), now, until)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
        return cls(_pem(key, builder.sign(key, hashes.SHA256())), now)

    @property
    def certificate(self) -> x509.Certificate:
        """Return the certificate of the authority itself."""
        return self._certificate

    def issue(self, common_name: str, hosts: Collection[str] = (), organization: str = "") -> Pem:
        """Return a key and a certificate, which holds for these host names and addresses where it is a server's.

        It never outlives the authority.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        until = min(self._now + dt.timedelta(days=LIFETIME_DAYS), self._certificate.not_valid_after_utc)
        subject = _subject(common_name, organization)
        builder = _builder(
            subject, self._certificate.subject, key.public_key(), self._key.public_key(), self._now, until
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(list(map(_general_name, hosts))), critical=False
            )
        return _pem(key, builder.sign(self._key, hashes.SHA256()))


def has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether the key of an authority's certificate has signed another one."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def certificates_in(pem: str) -> Sequence[x509.Certificate]:
    """Return the certificates of a PEM file in their order. Raises ValueError where there is none."""
    return x509.load_pem_x509_certificates(pem.encode())


def pem_of(certificates: Collection[x509.Certificate]) -> str:
    """Return certificates as a PEM file."""
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def hosts_of(certificate: x509.Certificate) -> frozenset[str]:
    """Return the host names and addresses that a certificate holds for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(str(name.value) for name in names)


def canonical_host(host: str) -> str:
    """Return a host as `hosts_of` has it."""
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return host


def renewed_at(certificate: x509.Certificate) -> dt.datetime:
    """Return when a certificate is to be renewed: at two thirds of its lifetime."""
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


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
    public_key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    now: dt.datetime,
    until: dt.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )
