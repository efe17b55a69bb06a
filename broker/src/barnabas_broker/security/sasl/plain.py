"""The mechanism PLAIN (RFC 4616): user and password in one token, checked against the JAAS entry of the listener."""

from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import AuthenticationFailed, Identity, ServerToken

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
