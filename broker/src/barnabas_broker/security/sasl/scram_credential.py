"""The SCRAM verifier that the broker stores instead of a password (RFC 5802).

The verifier can check a client, but does not suffice to log in.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import new, pbkdf2_hmac, sha256
from hmac import compare_digest, digest
from typing import Final, NamedTuple

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_ID_BYTES: Final = 8


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
class ScramKeys:
    """The two keys of a verifier; `repr` shows neither."""

    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)

    @property
    def verifier_id(self) -> bytes:
        """An id by which a session refers to the verifier, without its keys."""
        return sha256(self.stored_key).digest()[:_ID_BYTES]


@dataclass(frozen=True, slots=True)
class PreviousPassword:
    """The keys of the password before the current one, which are valid until a wall-clock time."""

    keys: ScramKeys
    ends_ms: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The verifier of a user and mechanism; `repr` shows neither its salt nor its keys."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int
    previous: PreviousPassword | None = None
    """The previous password, if it is still valid. It has the same salt and iteration count as the current one.

    The server's first message contains salt and iteration count. So one dialogue can check both passwords.
    """

    @property
    def keys(self) -> ScramKeys:
        """The keys of the current password."""
        return ScramKeys(self.stored_key, self.server_key)

    @property
    def valid_keys(self) -> tuple[ScramKeys, ScramKeys]:
        """The keys of both valid passwords; twice those of the current one if it is the only one.

        There are always two, so that response times do not reveal which users have two passwords.
        """
        return self.keys, self.keys if self.previous is None else self.previous.keys

    @property
    def verifier_ids(self) -> frozenset[bytes]:
        """The ids of the valid passwords."""
        return frozenset(each.verifier_id for each in self.valid_keys)

    def has_salt_of(self, other: "ScramCredential") -> bool:
        """True if salt and iteration count of both credentials are equal."""
        return (self.salt, self.iterations) == (other.salt, other.iterations)

    def at(self, now_ms: int) -> "ScramCredential":
        """Return the credential without the previous password if that has ended."""
        has_ended = self.previous is not None and self.previous.ends_ms <= now_ms
        return replace(self, previous=None) if has_ended else self

    def keys_of(self, stored_key: bytes) -> ScramKeys | None:
        """Return the valid keys with this stored key; None if no valid password has it."""
        found = [each for each in self.valid_keys if compare_digest(each.stored_key, stored_key)]
        return found[0] if found else None


class SaltShape(NamedTuple):
    """The length of a salt and the iteration count, which may reveal the tool that set the password."""

    salt_bytes: int
    """The length of the salt in bytes, or TEXT for a salt that Kafka's tools made: a 130-bit number in base 36."""
    iterations: int


_PREVIOUS: Final = "previous_"
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
    """Return the verifier in Kafka's text format.

    A previous password adds three parts at the end, which brokers of earlier versions do not read.
    """
    text = f"salt={_base64(credential.salt)},{_format_keys(credential.keys)},iterations={credential.iterations}"
    previous = credential.previous
    if previous is None:
        return text
    return f"{text},{_format_keys(previous.keys, _PREVIOUS)},{_PREVIOUS}ends_ms={previous.ends_ms}"


def _format_keys(keys: ScramKeys, prefix: str = "") -> str:
    return f"{prefix}stored_key={_base64(keys.stored_key)},{prefix}server_key={_base64(keys.server_key)}"


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def parse_credential(text: str) -> ScramCredential:
    """Parse the text of a verifier. Raise ValueError, with a message that does not contain the text."""
    try:
        parts = dict(each.split("=", 1) for each in text.split(","))
        keys, salt = _parse_keys(parts), b64decode(parts["salt"], validate=True)
        ends = parts.get(f"{_PREVIOUS}ends_ms")
        previous = None if ends is None else PreviousPassword(_parse_keys(parts, _PREVIOUS), int(ends))
        return ScramCredential(salt, keys.stored_key, keys.server_key, int(parts["iterations"]), previous)
    except (ValueError, KeyError):
        raise ValueError("a SCRAM verifier must be salt=,stored_key=,server_key=,iterations=") from None


def _parse_keys(parts: Mapping[str, str], prefix: str = "") -> ScramKeys:
    stored_key, server_key = (
        b64decode(parts[f"{prefix}{name}"], validate=True) for name in ("stored_key", "server_key")
    )
    return ScramKeys(stored_key, server_key)
