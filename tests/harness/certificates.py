"""A certificate authority for tests: keys and certificates as PEM files, made within milliseconds."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BOTH_USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")
_SIGNS = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The key usage of an authority, which Python's default contexts require from 3.13 on."""
_LOOPBACK = ipaddress.ip_address("127.0.0.1")


class Identity(NamedTuple):
    """A key with its certificate: the file that has both, and each as PEM."""

    file: Path
    key: str
    certificate: str


class Authority:
    """Issues certificates for localhost; `file` is its own certificate."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key(), days=10)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(_SIGNS, critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
        self.file = folder / f"{name}.pem"
        self.file.write_text(self.certificate)

    def issue(
        self,
        common_name: str,
        file_name: str | None = None,
        *,
        days: int = 10,
        begins_in_days: int = -20,
        usages: Sequence[x509.ObjectIdentifier] = BOTH_USAGES,
        addresses: Sequence[str] = (),
    ) -> Identity:
        """Return a key and a certificate, for these addresses too; with `days` below 0 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests, Inc"),
                x509.NameAttribute(NameOID.COMMON_NAME, common_name),
            ]
        )
        hosts = [_LOOPBACK, *map(ipaddress.ip_address, addresses)]
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), *map(x509.IPAddress, hosts)])
        builder = self._builder(subject, key.public_key(), days, begins_in_days)
        builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()
        return self._identity(key, certificate, file_name or common_name)

    def issue_printable(self, common_name: str) -> Identity:
        """Return a key and a certificate whose name is a PrintableString, whatever characters it has."""
        identity = self.issue(common_name)
        signed = x509.load_pem_x509_certificate(identity.certificate.encode())
        name = bytes([len(common_name)]) + common_name.encode()
        content = signed.tbs_certificate_bytes.replace(b"\x0c" + name, b"\x13" + name)
        signature = self._key.sign(content, ec.ECDSA(hashes.SHA256()))
        bits = b"\x03" + bytes([len(signature) + 1, 0]) + signature
        whole = content + _ECDSA_SHA256 + bits
        der = b"\x30\x82" + len(whole).to_bytes(2, "big") + whole
        certificate = ssl.DER_cert_to_PEM_cert(der)
        identity.file.write_text(identity.key + certificate)
        return identity._replace(certificate=certificate)

    def itself(self) -> Identity:
        """Return the authority's own key and certificate, which nobody else has signed."""
        return self._identity(self._key, self.certificate, "itself")

    def _identity(self, key: ec.EllipticCurvePrivateKey, certificate: str, name: str) -> Identity:
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        file = self._folder / f"{name}.pem"
        file.write_text(pem + certificate)
        return Identity(file, pem, certificate)

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int, begins_in_days: int = -20
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=begins_in_days))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
