"""CA certificates as a PKCS12 truststore, for Java clients that cannot read PEM."""

from collections.abc import Collection
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

ALIAS: Final = "ca"


def pkcs12_of(certificates: Collection[x509.Certificate], password: str) -> bytes:
    """Return a truststore for Java, in which each certificate has a different alias."""
    named = [
        PKCS12Certificate(each, f"{ALIAS}-{number}".removesuffix("-0").encode())
        for number, each in enumerate(certificates)
    ]
    return serialize_java_truststore(named, BestAvailableEncryption(password.encode()))
