"""The mechanism PLAIN for SCRAM users; the broker stores verifiers of their passwords, and no passwords.

A thread hashes each password to compare it with the verifier, because the hash takes milliseconds. A password that was
accepted before is recognized by a fast keyed hash (`Seal`), so that clients that reconnect do not wait for each other.

Passwords of unknown users are hashed, too. Neither responses nor response times reveal which users exist.
"""

from collections.abc import Sequence
from functools import partial
from hmac import compare_digest, digest
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import AuthenticationFailed, Identity, ServerToken, SlowCheck
from barnabas_broker.security.sasl.plain import PlainToken, parse_plain
from barnabas_broker.security.sasl.scram import Scram
from barnabas_broker.security.sasl.scram_credential import ScramCredential, credential_of, salted_password

_HASH: Final = "sha256"


class Verifier(NamedTuple):
    """The verifier that a password is checked against, and its mechanism; `exists` is False for an unknown user."""

    scram: Scram
    credential: ScramCredential
    exists: bool


class Seal(NamedTuple):
    """The keyed hash of a password that was accepted, and the verifier that the password matched."""

    credential: ScramCredential
    sealed: bytes


_NO_SEAL: Final = Seal(ScramCredential(b"", b"", b"", 0), b"")


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
        self._seals: dict[str, Seal] = {}

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
        seal = self._seals.get(asked.user, _NO_SEAL)
        was_right = compare_digest(seal.sealed, sealed)
        if was_right and verifier.exists and seal.credential == verifier.credential:
            return _accepted(asked, verifier)
        credential = verifier.credential
        compute = partial(salted_password, verifier.scram.kind, asked.password, credential.salt, credential.iterations)
        return SlowCheck(compute, partial(self._conclude, asked, verifier, sealed))

    def _conclude(self, asked: PlainToken, verifier: Verifier, sealed: bytes, salted: bytes) -> ServerToken:
        wanted, kind = verifier.credential, verifier.scram.kind
        made = credential_of(kind, salted, wanted.salt, wanted.iterations)
        fits = compare_digest(made.stored_key, wanted.stored_key)
        is_current = verifier.exists and verifier.scram.credential_of(asked.user) == wanted
        if not fits or not is_current:
            raise AuthenticationFailed(f"the user is unknown, or the password is wrong: {asked.user!r}")
        self._seals[asked.user] = Seal(wanted, sealed)
        return _accepted(asked, verifier)

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


def _accepted(asked: PlainToken, verifier: Verifier) -> ServerToken:
    return ServerToken(b"", Identity(asked.user, credential=verifier.scram.name))
