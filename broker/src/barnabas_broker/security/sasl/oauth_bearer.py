"""OAUTHBEARER (RFC 7628, KIP-255): a signed token, in one message. Only the broker's log says what is wrong with it.

A refused client first gets the same JSON for every cause, without an error. It answers with one byte, and then hears
the refusal with that JSON as its message.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import AuthenticationFailed, Dialogue, Identity, ServerToken
from barnabas_broker.security.sasl.scram_messages import NAME, plain_name
from barnabas_broker.security.sasl.tokens.signed_token import InvalidToken, UnknownKey, identity_of
from barnabas_broker.security.sasl.tokens.token_keys import TokenKeys
from barnabas_broker.security.sasl.tokens.token_rules import TokenRules

MESSAGE_BYTES_MAX: Final = 64 * 1024
"""A client that authenticates again could send more than before it authenticated."""
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
_MESSAGE: Final = re.compile(
    rf"n,(?:a=(?P<authorized_as>{NAME}))?,\x01auth=[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-\w.~+/]+=*)"
    r"\x01(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*\x01",
    re.ASCII,
)


class ClientMessage(NamedTuple):
    """The client's first message."""

    authorized_as: str
    token: str


class OAuthBearer:
    """The mechanism, for the keys and the rules of one listener."""

    name = "OAUTHBEARER"

    def __init__(self, keys: TokenKeys, rules: TokenRules, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._rules = rules
        self._now_ms = now_ms

    def begin(self) -> Dialogue:
        """Begin an attempt."""
        return OAuthBearerDialogue(self)

    def identity_of(self, token: str) -> Identity:
        """Return the user of a token. Raises InvalidToken."""
        try:
            return identity_of(token, self._keys.current, self._rules, self._now_ms())
        except UnknownKey:
            self._keys.miss()
            raise


class OAuthBearerDialogue:
    """One attempt: the token, and after an invalid one the byte with which the client acknowledges the error."""

    def __init__(self, mechanism: OAuthBearer) -> None:
        self._mechanism = mechanism
        self._refusal: str | None = None

    def respond(self, token: bytes) -> ServerToken:
        """Take the client's next message. Raises AuthenticationFailed."""
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
    """Return the token and the user that the client wants to be. Raises AuthenticationFailed."""
    if len(token) > MESSAGE_BYTES_MAX:
        raise AuthenticationFailed(f"the message is larger than {MESSAGE_BYTES_MAX} bytes")
    match = _MESSAGE.fullmatch(token.decode("utf-8", "replace"))
    if match is None:
        raise AuthenticationFailed("the message must be n,[a=NAME],^Aauth=Bearer TOKEN^A[KEY=VALUE^A]^A")
    return ClientMessage(plain_name(match["authorized_as"] or ""), match["token"])
