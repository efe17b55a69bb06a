"""The mechanism PLAIN (RFC 4616): user and password in one token, checked against the JAAS entry of the listener.

The mechanism PLAIN for SCRAM users; the broker stores verifiers of their passwords, and no passwords. A thread
hashes each password to compare it with the verifier, because the hash takes milliseconds. A password that was
accepted before is recognized by a fast keyed hash (`Seal`), so that clients that reconnect do not wait for each
other.

Passwords of unknown users are hashed, too. Neither responses nor response times reveal which users exist. A user may
have a previous password, which the same hash is compared with, because it has the same salt.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from hmac import compare_digest, digest
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import AuthenticationFailed, Identity, ServerToken, SlowCheck
from barnabas_broker.security.sasl.scram import Scram
from barnabas_broker.security.sasl.scram_credential import ScramCredential, ScramKeys, credential_of, salted_password

PARTS: Final = 3
_NOBODY: Final = b"\0" * sha256().digest_size


class Plain:
    """The mechanism PLAIN with the passwords of its users."""

    name = "PLAIN"

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._digests = {user: _digest(password) for user, password in passwords.items()}

    def begin(self) -> "Plain":
        """Begin an attempt; all attempts share one object, because PLAIN has one step and no state."""
        return self

    def respond(self, token: bytes) -> ServerToken:
        """Check a token of the form `authzid NUL user NUL password`.

        Raise AuthenticationFailed if the token is malformed, if the user or the password is wrong, or if authzid is
        another user.
        """
        authorized_as, user, password = parse_plain(token)
        known = self._digests.get(user, _NOBODY)
        # Compare digests, which have equal lengths, because the time to compare passwords would reveal their length.
        if not compare_digest(_digest(password), known):
            raise AuthenticationFailed(f"the user is unknown, or the password is wrong: {user!r}")
        if authorized_as not in ("", user):
            raise AuthenticationFailed(f"{user!r} asks to act as another user, which is not allowed")
        return ServerToken(b"", Identity(user))


class PlainToken(NamedTuple):
    """The content of a client's token."""

    authorized_as: str
    user: str
    password: str


def parse_plain(token: bytes) -> PlainToken:
    """Parse a token of the form `authzid NUL user NUL password`. Raise AuthenticationFailed if it is malformed."""
    try:
        parts = token.decode("utf-8").split("\0")
    except UnicodeDecodeError as error:
        raise AuthenticationFailed("a PLAIN token is not UTF-8") from error
    if len(parts) != PARTS or not parts[1] or not parts[2]:
        raise AuthenticationFailed("a PLAIN token must be [authzid] NUL user NUL password")
    return PlainToken(*parts)


def _digest(password: str) -> bytes:
    return sha256(password.encode("utf-8")).digest()


_HASH: Final = "sha256"


class Verifier(NamedTuple):
    """The verifier that a password is checked against, and its mechanism; `exists` is False for an unknown user."""

    scram: Scram
    credential: ScramCredential
    exists: bool


class Seal(NamedTuple):
    """The keyed hash of a password that was accepted, and the keys of the verifier that the password matched."""

    keys: ScramKeys
    sealed: bytes


Seals = tuple[Seal, Seal]
_NO_SEAL: Final = Seal(ScramKeys(b"", b""), b"")
_NO_SEALS: Final = (_NO_SEAL, _NO_SEAL)


class VerifiedPlain:
    """The mechanism PLAIN, which checks passwords against the users' SCRAM credentials.

    If a user has credentials for several mechanisms, the first of these mechanisms in `scrams` is used.

    Accepted passwords are cached as keyed hashes. The random `key` exists only in this process, and without it the
    hashes reveal nothing.
    """

    name = "PLAIN"

    def __init__(self, scrams: Sequence[Scram], key: bytes) -> None:
        self._scrams = scrams
        self._key = key
        self._seals: dict[str, Seals] = {}
        """The last two passwords of each user that were accepted."""

    def begin(self) -> "VerifiedPlain":
        """Return this object, which all authentications share: PLAIN has a single step, so no state must be kept."""
        return self

    def respond(self, token: bytes) -> ServerToken | SlowCheck:
        """Accept a password that was accepted before; for any other password return a SlowCheck, which a thread runs.

        Raise AuthenticationFailed if the token is malformed, or asks to act as another user.
        """
        asked = parse_plain(token)
        if asked.authorized_as not in ("", asked.user):
            raise AuthenticationFailed(f"{asked.user!r} asks to act as another user, which is not allowed")
        verifier, sealed = self._verifier(asked.user), digest(self._key, asked.password.encode(), _HASH)
        right = [seal for seal in self._seals.get(asked.user, _NO_SEALS) if compare_digest(seal.sealed, sealed)]
        if right and verifier.exists and right[0].keys in verifier.credential.valid_keys:
            return _accepted(asked, verifier.scram, right[0].keys)
        credential = verifier.credential
        compute = partial(salted_password, verifier.scram.kind, asked.password, credential.salt, credential.iterations)
        return SlowCheck(compute, partial(self._conclude, asked, verifier, sealed))

    def _conclude(self, asked: PlainToken, verifier: Verifier, sealed: bytes, salted: bytes) -> ServerToken:
        wanted, kind = verifier.credential, verifier.scram.kind
        made = credential_of(kind, salted, wanted.salt, wanted.iterations)
        # The password may have changed since the request. If its salt is still the same, either password counts.
        known = verifier.scram.credential_of(asked.user)
        is_current = verifier.exists and known is not None and known.has_salt_of(wanted)
        matched = (known if known is not None and is_current else wanted).keys_of(made.stored_key)
        if matched is None or not is_current:
            raise AuthenticationFailed(f"the user is unknown, or the password is wrong: {asked.user!r}")
        last, before = self._seals.get(asked.user, _NO_SEALS)
        self._seals[asked.user] = Seal(matched, sealed), before if last.keys == matched else last
        return _accepted(asked, verifier.scram, matched)

    def _verifier(self, user: str) -> Verifier:
        # The verifier is made up for existing users, too: response times must not reveal which users exist.
        made_up = self._made_up(user)
        for scram in self._scrams:
            credential = scram.credential_of(user)
            if credential is not None:
                return Verifier(scram, credential, exists=True)
        return made_up

    def _made_up(self, user: str) -> Verifier:
        """Return a verifier that no password matches, for an unknown user.

        The mechanism is one that existing users have, so that hashing takes as long as for an existing user.
        """
        used = [scram for scram in self._scrams if scram.has_users] or self._scrams[:1]
        found = [Verifier(scram, scram.made_up(user), exists=False) for scram in used]
        return max(found, key=lambda each: each.credential.stored_key)


def _accepted(asked: PlainToken, scram: Scram, keys: ScramKeys) -> ServerToken:
    return ServerToken(b"", Identity(asked.user, credential=scram.name, verifier_id=keys.verifier_id))
