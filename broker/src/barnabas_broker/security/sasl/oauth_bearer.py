"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): the client sends a signed token in one message.

If the token is invalid, the broker first sends the JSON INVALID_TOKEN, without an error code. The client acknowledges
with one byte. The broker then sends an error code, with the same JSON as the error message. The cause is only in the
broker's log.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import AuthenticationFailed, Identity, ServerToken
from barnabas_broker.security.sasl.scram import NAME, plain_name
from barnabas_broker.security.sasl.tokens.signed_token import InvalidToken, UnknownKey, identity_of
from barnabas_broker.security.sasl.tokens.token_keys import TokenKeys, TokenRules

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""The maximum bytes of a SASL message.

The limit also holds for a re-authentication, where the connection would allow larger requests.
"""
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
_MESSAGE: Final = re.compile(
    rf"n,(?:a=(?P<authorized_as>{NAME}))?,\x01auth=[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-\w.~+/]+=*)"
    r"\x01(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01",
    re.ASCII,
)


class ClientMessage(NamedTuple):
    """The first message of a client."""

    authorized_as: str
    token: str


class OAuthBearer:
    """The mechanism OAUTHBEARER with the keys and the token rules of a listener."""

    name = "OAUTHBEARER"

    def __init__(self, keys: TokenKeys, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms

    def begin(self) -> "OAuthBearerDialogue":
        """Begin an attempt to authenticate."""
        return OAuthBearerDialogue(self)

    def identity_of(self, token: str) -> Identity:
        """Return the user of a token. Raise InvalidToken if a check of the token fails.

        If the key of the token is unknown, the keys are fetched again soon.
        """
        try:
            return identity_of(token, self._keys.current, self._rules, self._now_ms())
        except UnknownKey:
            self._keys.miss()
            raise


class OAuthBearerDialogue:
    """One attempt to authenticate: the client sends a token, and acknowledges the error if the token is invalid."""

    def __init__(self, mechanism: OAuthBearer) -> None:
        self._mechanism = mechanism
        self._refusal: str | None = None

    def respond(self, token: bytes) -> ServerToken:
        """Return the user of a valid token, or INVALID_TOKEN for an invalid token.

        The client acknowledges INVALID_TOKEN with one more message. Raise AuthenticationFailed for that message, or if
        a message is malformed.
        """
        if self._refusal is not None:
            raise AuthenticationFailed(self._refusal, INVALID_TOKEN)
        message = parse_client_message(token)
        try:
            identity = self._mechanism.identity_of(message.token)
            if message.authorized_as not in ("", identity.user):
                raise InvalidToken(f"{identity.user!r} asks to act as another user, which is not allowed")
        except InvalidToken as error:
            self._refusal = str(error)
            return ServerToken(INVALID_TOKEN.encode(), refusal=self._refusal)
        return ServerToken(b"", identity)


def parse_client_message(token: bytes) -> ClientMessage:
    """Return the token and the user as which the client asks to act.

    Raise AuthenticationFailed if the message is too large or malformed.
    """
    if len(token) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(f"the message is larger than {MESSAGE_BYTES_MAX} bytes")
    match = _MESSAGE.fullmatch(token.decode("utf-8", "replace"))
    if match is None:
        raise AuthenticationFailed("the message must be n,[a=NAME],^Aauth=Bearer TOKEN^A[KEY=VALUE^A]^A")
    return ClientMessage(plain_name(match["authorized_as"] or ""), match["token"])
