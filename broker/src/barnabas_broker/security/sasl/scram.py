"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and of PLAIN (RFC 4616).

With SCRAM, an unknown user gets a challenge as if the user existed. The salt is the same at each attempt, and its
length and the iteration count are those of an existing user. The refusal is the same as for a wrong password. Each
proof is checked against two verifiers, because a user may have a previous password.

With PLAIN, user and password are in one token, checked against the JAAS entry of the listener or against SCRAM users.
The broker stores verifiers of their passwords, and no passwords. A thread hashes each password to compare it with the
verifiers, because the hash takes milliseconds. A password that was accepted before is recognized by a fast keyed hash
(`Seal`), so that clients that reconnect do not wait for each other. Passwords of unknown users are hashed, too.

Neither responses nor response times reveal which users exist, or which have two passwords.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256, shake_256
from hmac import compare_digest, digest
from typing import Final, NamedTuple, Protocol

import msgspec

from barnabas_broker.security.sasl.scram_credential import (
    ITERATIONS_MIN,
    TEXT,
    TEXT_BITS,
    TEXT_DIGITS,
    SaltShape,
    ScramCredential,
    ScramHash,
    ScramKeys,
    credential_of,
    hashed,
    salted_password,
)


class AuthenticationFailed(Exception):
    """The error that a client is refused; the broker logs the message, but does not send it to the client.

    `for_client` is the message that the client gets, as the specification of OAUTHBEARER requires.
    """

    def __init__(self, reason: str, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


class Identity(msgspec.Struct, frozen=True):
    """An authenticated user, and the time at which the credential expires."""

    user: str
    expires_at_ms: int | None = None
    """The wall-clock time at which the credential expires; None if it does not expire."""
    credential: str = ""
    """The mechanism of the stored credential (such as SCRAM-SHA-512) if the client used another mechanism (PLAIN).

    Empty if the client used the mechanism of the credential.
    """
    verifier_id: bytes = b""
    """The id of the stored verifier that the client's password matched; empty without a stored verifier."""


class ServerToken(NamedTuple):
    """A token that the broker sends; if `identity` is set, the client is authenticated, and the exchange is over."""

    token: bytes
    identity: Identity | None = None
    refusal: str | None = None
    """The reason for the log if OAUTHBEARER refuses the client; otherwise None.

    In a refusal, `token` is the error message for the client.
    """


class SlowCheck(msgspec.Struct, frozen=True):
    """A check that takes milliseconds: `compute` runs in a thread, and `conclude` gets its result on the event loop.

    `conclude` raises AuthenticationFailed if the client is refused.
    """

    compute: Callable[[], bytes]
    conclude: Callable[[bytes], ServerToken]


class Dialogue(Protocol):
    """One attempt of a client to authenticate."""

    def answer(self, token: bytes) -> ServerToken | SlowCheck:
        """Handle the client's next token. Raise AuthenticationFailed if the client is refused."""
        ...


class Mechanism(Protocol):
    """A SASL mechanism of a listener."""

    @property
    def name(self) -> str:
        """The name by which clients choose the mechanism."""
        ...

    def begin(self) -> Dialogue:
        """Begin an attempt to authenticate."""
        ...


NAME: Final = r"(?:[^,=\0]|=2C|=3D)+"
_BASE64: Final = r"[A-Za-z0-9+/]+={0,2}"
_NONCE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authorized_as>{NAME}))?,)(?P<bare>n=(?P<user>{NAME}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]=[^,\0]+|,tokenauth=[a-z]+)*)"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproved>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE})(?:,[A-Za-z]=[^,\0]+)*?),p=(?P<proof>{_BASE64})"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})(?:,.*)?"
)


class MalformedScram(Exception):
    """The error that a message does not have SCRAM's syntax."""


class ClientFirst(msgspec.Struct, frozen=True):
    """The first message of a client."""

    gs2_header: str
    authorized_as: str
    bare: str
    user: str
    nonce: str


class ClientFinal(msgspec.Struct, frozen=True):
    """The final message of a client, with its proof."""

    unproved: str
    channel: bytes
    nonce: str
    proof: bytes


class ServerFirst(msgspec.Struct, frozen=True):
    """The first message of a server, with the challenge."""

    nonce: str
    salt: bytes
    iterations: int


def parse_client_first(token: bytes) -> ClientFirst:
    """Parse a client's first message.

    Raise MalformedScram if the syntax is wrong, or if the client requests channel binding, which is not supported.
    """
    match = _CLIENT_FIRST.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("the first message must be n,[a=NAME],n=USER,r=NONCE")
    names = (plain_name(match[each] or "") for each in ("authorized_as", "user"))
    authorized_as, user = names
    return ClientFirst(match["gs2"], authorized_as, match["bare"], user, match["nonce"])


def parse_client_final(token: bytes) -> ClientFinal:
    """Parse a client's final message. Raise MalformedScram if the syntax is wrong."""
    match = _CLIENT_FINAL.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("the final message must be c=BASE64,r=NONCE,p=BASE64")
    return ClientFinal(match["unproved"], _bytes(match["channel"]), match["nonce"], _bytes(match["proof"]))


def parse_server_first(token: bytes) -> ServerFirst:
    """Parse a server's first message. Raise MalformedScram if the syntax is wrong."""
    match = _SERVER_FIRST.fullmatch(_text(token))
    if match is None:
        raise MalformedScram("a server's first message must be r=NONCE,s=BASE64,i=NUMBER")
    return ServerFirst(match["nonce"], _bytes(match["salt"]), int(match["iterations"]))


def escaped_name(name: str) -> str:
    """Return a user's name with the escapes of SCRAM messages."""
    return name.replace("=", "=3D").replace(",", "=2C")


def plain_name(escaped: str) -> str:
    """Return a user's name without the escapes of SCRAM messages."""
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _text(token: bytes) -> str:
    try:
        return token.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedScram("a SCRAM message must be UTF-8") from None


def _bytes(base64: str) -> bytes:
    try:
        return b64decode(base64, validate=True)
    except ValueError:
        raise MalformedScram("a field of a SCRAM message is not base64") from None


CredentialOf = Callable[[str], ScramCredential | None]
_USUAL: Final = (SaltShape(TEXT, ITERATIONS_MIN),)


class Scram:
    """The mechanism SCRAM with one hash function.

    `credential_of` returns the credential of a user, with the passwords that are valid now. The salts of unknown users
    are derived from `secret`. `new_nonce` returns a different text at each call. `shapes` returns the pairs of salt
    length and iteration count that the credentials of the users have.
    """

    def __init__(
        self,
        kind: ScramHash,
        credential_of: CredentialOf,
        secret: bytes,
        new_nonce: Callable[[], str],
        shapes: Callable[[], Collection[SaltShape]] = lambda: _USUAL,
    ) -> None:
        self.name = kind.mechanism
        self.kind = kind
        self.credential_of = credential_of
        self._secret = secret
        self.new_nonce = new_nonce
        self._shapes = shapes

    def begin(self) -> "ScramDialogue":
        """Begin an attempt to authenticate."""
        return ScramDialogue(self)

    @property
    def has_users(self) -> bool:
        """True if a user has a credential of this mechanism."""
        return bool(self._shapes())

    def made_up(self, user: str) -> ScramCredential:
        """Return a credential for an unknown user, which no proof matches.

        The user's name selects one of the pairs of salt length and iteration count that existing users have.
        """
        seed = digest(self._secret, f"{self.name} {user}".encode(), "sha512")
        key = digest(self._secret, seed, self.kind.function)
        shape = max(self._shapes() or _USUAL, key=lambda each: digest(seed, repr(each).encode(), "sha256"))
        return ScramCredential(_salt(seed, shape.salt_bytes), key, key, shape.iterations)


class ScramDialogue:
    """One attempt to authenticate: the client first sends its user name and a nonce, and then its proof."""

    def __init__(self, mechanism: Scram) -> None:
        self._mechanism = mechanism
        self._first: ClientFirst | None = None
        self._nonce = ""
        self._server_first = ""

    def answer(self, token: bytes) -> ServerToken:
        """Return the reply to the client's next message; the reply to the proof has the authenticated user.

        Raise AuthenticationFailed if the client is refused.
        """
        try:
            return self._challenge(token) if self._first is None else self._verdict(self._first, token)
        except MalformedScram as error:
            raise AuthenticationFailed(str(error)) from error

    def _challenge(self, token: bytes) -> ServerToken:
        self._first = first = parse_client_first(token)
        known = self._mechanism.credential_of(first.user)
        # The credential is made up for existing users, too: response times must not reveal which users exist.
        made_up = self._mechanism.made_up(first.user)
        self._asked = known or made_up
        self._nonce = first.nonce + self._mechanism.new_nonce()
        salt = b64encode(self._asked.salt).decode()
        self._server_first = f"r={self._nonce},s={salt},i={self._asked.iterations}"
        return ServerToken(self._server_first.encode())

    def _verdict(self, first: ClientFirst, token: bytes) -> ServerToken:
        final = parse_client_final(token)
        kind = self._mechanism.kind
        if not compare_digest(final.nonce.encode(), self._nonce.encode()):
            raise AuthenticationFailed("the final message has a different nonce")
        if final.channel != first.gs2_header.encode():
            raise AuthenticationFailed("the final message has a different channel binding than the first")
        messages = f"{first.bare},{self._server_first},{final.unproved}".encode()
        # The password may have changed since the challenge. If its salt is still the same, the proof of either counts.
        known = self._mechanism.credential_of(first.user)
        is_current = known is not None and known.has_salt_of(self._asked)
        proved = _proved(kind, known if known is not None and is_current else self._asked, messages, final.proof)
        if proved is None or not is_current:
            raise AuthenticationFailed(f"the user is unknown, or the password is wrong: {first.user!r}")
        if first.authorized_as not in ("", first.user):
            raise AuthenticationFailed(f"{first.user!r} asks to act as another user, which is not allowed")
        verifier = b64encode(digest(proved.server_key, messages, kind.function))
        return ServerToken(b"v=" + verifier, Identity(first.user, verifier_id=proved.verifier_id))


def _proved(kind: ScramHash, credential: ScramCredential, messages: bytes, proof: bytes) -> ScramKeys | None:
    """Return the keys of the password that the proof proves; None if it proves no valid password."""
    if len(proof) != kind.key_bytes:
        return None
    found: ScramKeys | None = None
    for keys in credential.valid_keys:  # Both are always computed, for equal response times.
        signature = digest(keys.stored_key, messages, kind.function)
        if compare_digest(hashed(kind, _xor(proof, signature)), keys.stored_key):
            found = keys
    return found


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _salt(seed: bytes, salt_bytes: int) -> bytes:
    if salt_bytes != TEXT:
        return shake_256(seed).digest(salt_bytes)
    number, digits = int.from_bytes(seed) >> 8 * len(seed) - TEXT_BITS, ""
    while number:
        number, digit = divmod(number, len(TEXT_DIGITS))
        digits = TEXT_DIGITS[digit] + digits
    return digits.encode()


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

    def answer(self, token: bytes) -> ServerToken:
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


class Verifier(msgspec.Struct, frozen=True):
    """The verifier that a password is checked against, and its mechanism; `exists` is False for an unknown user."""

    scram: Scram
    credential: ScramCredential
    exists: bool


class Seal(msgspec.Struct, frozen=True):
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

    def answer(self, token: bytes) -> ServerToken | SlowCheck:
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
