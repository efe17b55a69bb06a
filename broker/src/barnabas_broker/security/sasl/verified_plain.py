"""The mechanism PLAIN with the passwords of SCRAM users; the broker has only verifiers of these passwords.

A password is hashed like the verifier, which takes milliseconds, so a thread does the work. A password that was right
before is recognized by a fast keyed hash (`Seal`), so that clients that connect again do not wait for each other.

Passwords of unknown users are hashed, too. Neither responses nor times show which users exist.
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
    """The verifier that a password is checked against, and its mechanism; `exists` is False if it is made up."""

    scram: Scram
    credential: ScramCredential
    exists: bool


class Seal(NamedTuple):
    """A password that was right, as a keyed hash, and the verifier that it matched."""

    credential: ScramCredential
    sealed: bytes


_NO_SEAL: Final = Seal(ScramCredential(b"", b"", b"", 0), b"")


class VerifiedPlain:
    """The mechanism PLAIN for the users of `scrams`; of a user with several verifiers the first one counts.

    `key` is a random key of this process; without the key the hashes of passwords reveal nothing.
    """

    name = "PLAIN"

    def __init__(self, scrams: Sequence[Scram], key: bytes) -> None:
        self._scrams = scrams
        self._key = key
        self._seals: dict[str, Seal] = {}

    def begin(self) -> "VerifiedPlain":
        """Begin an attempt; all attempts share one object, because PLAIN has one step."""
        return self

    def respond(self, token: bytes) -> ServerToken | SlowCheck:
        """Accept a password that was right before; for any other password return the check that a thread computes.

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
        made_up = self._made_up(user)  # Known users need this work, too: times must be equal.
        for scram in self._scrams:
            credential = scram.credential_of(user)
            if credential is not None:
                return Verifier(scram, credential, exists=True)
        return made_up

    def _made_up(self, user: str) -> Verifier:
        """Return a verifier that no password matches, of one of the mechanisms that users have."""
        used = [scram for scram in self._scrams if scram.has_users] or self._scrams[:1]
        found = [Verifier(scram, scram.made_up(user), exists=False) for scram in used]
        return max(found, key=lambda each: each.credential.stored_key)


def _accepted(asked: PlainToken, verifier: Verifier) -> ServerToken:
    return ServerToken(b"", Identity(asked.user, credential=verifier.scram.name))
