"""The SCRAM verifier that the broker stores instead of a password (RFC 5802).

The verifier can check a client, but does not suffice to log in.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import new, pbkdf2_hmac
from hmac import digest
from typing import Final, NamedTuple

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384


class ScramHash(NamedTuple):
    """A SCRAM mechanism with its name, its number in the protocol (KIP-554), its hash function and its key size."""

    mechanism: str
    number: int
    function: str
    key_bytes: int


SCRAM_HASHES: Final[Mapping[str, ScramHash]] = {
    each.mechanism: each
    for each in (ScramHash("SCRAM-SHA-256", 1, "sha256", 32), ScramHash("SCRAM-SHA-512", 2, "sha512", 64))
}
BY_NUMBER: Final = {each.number: each for each in SCRAM_HASHES.values()}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The verifier of a user and mechanism; `repr` shows neither its salt nor its keys."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class SaltShape(NamedTuple):
    """The length of a salt and the iteration count, which may reveal the tool that set the password."""

    salt_bytes: int
    """The length of the salt in bytes, or TEXT for a salt that Kafka's tools made: a 130-bit number in base 36."""
    iterations: int


TEXT: Final = 0
TEXT_BITS: Final = 130
TEXT_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT_BYTES_MAX: Final = 26


def shape_of(credential: ScramCredential) -> SaltShape:
    """Return the length of the salt and the iteration count of a credential."""
    salt = credential.salt
    is_text = len(salt) <= _TEXT_BYTES_MAX and not salt.strip(TEXT_DIGITS.encode())
    return SaltShape(TEXT if is_text else len(salt), credential.iterations)


def salted_password(kind: ScramHash, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which the client's proof is computed; the computation takes milliseconds."""
    return pbkdf2_hmac(kind.function, password.encode("utf-8"), salt, iterations)


def credential_of(kind: ScramHash, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the verifier for a salted password."""
    client_key = digest(salted, b"Client Key", kind.function)
    server_key = digest(salted, b"Server Key", kind.function)
    return ScramCredential(salt, hashed(kind, client_key), server_key, iterations)


def hashed(kind: ScramHash, key: bytes) -> bytes:
    """Return the hash of a key: H(key) in RFC 5802."""
    return new(kind.function, key).digest()


def format_credential(credential: ScramCredential) -> str:
    """Return the verifier in Kafka's text format."""
    parts = (
        ("salt", credential.salt),
        ("stored_key", credential.stored_key),
        ("server_key", credential.server_key),
    )
    return ",".join([f"{name}={b64encode(value).decode()}" for name, value in parts]) + (
        f",iterations={credential.iterations}"
    )


def parse_credential(text: str) -> ScramCredential:
    """Parse the text of a verifier. Raise ValueError, with a message that does not contain the text."""
    try:
        parts = dict(each.split("=", 1) for each in text.split(","))
        salt, stored_key, server_key = (
            b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(parts["iterations"]))
    except (ValueError, KeyError):
        raise ValueError("a SCRAM verifier must be salt=,stored_key=,server_key=,iterations=") from None
