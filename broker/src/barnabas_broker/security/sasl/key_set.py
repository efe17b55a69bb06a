"""Parse a JWK set (RFC 7517) into public keys, each with the signature algorithms that it permits.

ALGORITHMS contains only asymmetric algorithms, so an unsigned token is never accepted, and a public key cannot be used
as the secret of an HMAC.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK, PyJWTError
from jwt.algorithms import AllowedPublicKeys

KEY_SET_BYTES_MAX: Final = 256 * 1024
RSA_BITS_MIN: Final = 2048
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""The signature algorithms by the type and curve of a key."""


class InvalidKeySet(Exception):
    """The error that a text is not a JWK set, or has no public key for signatures."""


class TokenKey(msgspec.Struct, frozen=True):
    """A public key with its id and its permitted algorithms."""

    key_id: str | None
    algorithms: tuple[str, ...]
    key: AllowedPublicKeys


class _KeySet(msgspec.Struct):
    keys: list[dict[str, Any]]


def parse_key_set(text: bytes) -> tuple[TokenKey, ...]:
    """Return the public keys for signatures, and ignore other entries.

    Raise InvalidKeySet if the text is malformed or has no such key.
    """
    if len(text) > KEY_SET_BYTES_MAX:
        raise InvalidKeySet(f"the JWK set is larger than {KEY_SET_BYTES_MAX} bytes")
    try:
        entries = msgspec.json.decode(text, type=_KeySet).keys
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidKeySet(f"the text is not a JWK set: {error}") from error
    keys = tuple(_usable(entries))
    if not keys:
        raise InvalidKeySet(
            f"the JWK set needs a public key for signatures: RSA with at least {RSA_BITS_MIN} bits, EC or Ed25519"
        )
    return keys


def _usable(entries: list[dict[str, Any]]) -> Iterator[TokenKey]:
    for entry in entries:
        kind, curve, key_id = (entry.get(name, "") for name in ("kty", "crv", "kid"))
        if not all(isinstance(each, str) for each in (kind, curve, key_id)) or not _is_for_signatures(entry):
            continue
        algorithms = tuple(name for name in ALGORITHMS.get((kind, curve), ()) if entry.get("alg", name) == name)
        if algorithms and (key := _loaded(entry, algorithms[0])) is not None:
            yield TokenKey(key_id or None, algorithms, key)


def _is_for_signatures(entry: Mapping[str, Any]) -> bool:
    """True if the entry is a public key for verifying signatures."""
    operations = entry.get("key_ops", ["verify"])
    may_verify = isinstance(operations, list) and "verify" in operations
    return "d" not in entry and entry.get("use", "sig") == "sig" and may_verify


def _loaded(entry: dict[str, Any], algorithm: str) -> AllowedPublicKeys | None:
    try:
        key = PyJWK(entry, algorithm).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    is_short = isinstance(key, RSAPublicKey) and key.key_size < RSA_BITS_MIN
    return None if is_short else key
