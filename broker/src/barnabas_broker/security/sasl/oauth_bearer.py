"""The mechanism OAUTHBEARER (RFC 7628, KIP-255): the client sends a signed token in one message.

If the token is invalid, the broker first sends the JSON INVALID_TOKEN, without an error code. The client acknowledges
with one byte. The broker then sends an error code, with the same JSON as the error message. The cause is only in the
broker's log.

Verify a token (JWT, RFC 7519): its signature with PyJWT, then its times and its other claims. A token can name only
an algorithm that its key permits (`key_set.ALGORITHMS`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import jwt
import msgspec

from barnabas_broker.security.sasl.key_set import TokenKey
from barnabas_broker.security.sasl.scram import NAME, AuthenticationFailed, Identity, ServerToken, plain_name
from barnabas_broker.security.sasl.token_keys import TokenKeys, TokenRules

TOKEN_BYTES_MAX: Final = 16 * 1024
SECONDS_MAX: Final = 253_402_300_799
"""The last second of the year 9999; claims with a later time are invalid."""
_SHOWN: Final = 200


class InvalidToken(Exception):
    """The error that a token is invalid; the message is for the broker's log."""


class UnknownKey(InvalidToken):
    """The error that a token names a key that is not in the JWK set; the key may be newer than the set."""


def identity_of(token: str, keys: Sequence[TokenKey], rules: TokenRules, now_ms: int) -> Identity:
    """Return the user of a token and the end of its validity. Raise InvalidToken if a check of the token fails."""
    if len(token) > TOKEN_BYTES_MAX:
        raise InvalidToken(f"the token is larger than {TOKEN_BYTES_MAX} bytes")
    try:
        key = _key_for(jwt.get_unverified_header(token), keys)
        claims = jwt.decode(
            token,
            key.key,
            algorithms=key.algorithms,
            audience=rules.audiences,
            issuer=rules.issuer,
            options={
                "require": ["exp", "iat"],
                "verify_aud": bool(rules.audiences),
                "verify_iss": rules.issuer is not None,
                # PyJWT would use the system clock, so `_checked_times` checks the times.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
                "verify_sub": False,
                "verify_jti": False,
            },
        )
    except jwt.PyJWTError as error:
        # Shorten and quote the message of PyJWT, because it can contain parts of the token.
        raise InvalidToken(f"the token is refused: {str(error)[:_SHOWN]!r}") from error
    expires_at_ms = _checked_times(claims, rules.skew_s, now_ms)
    _check_scopes(claims, rules.scope_claim)
    return Identity(_subject(claims, rules.subject_claim), expires_at_ms)


def _key_for(header: Mapping[str, Any], keys: Sequence[TokenKey]) -> TokenKey:
    """Return the key that permits the token's algorithm and has the token's key id, if the token names one.

    Raise InvalidToken unless there is exactly one such key.
    """
    algorithm, key_id = header.get("alg"), header.get("kid")
    named = [key for key in keys if key_id is None or key.key_id == key_id]
    if not named:
        raise UnknownKey(f"no key has the id {str(key_id)[:_SHOWN]!r} that the token names")
    fitting = [key for key in named if algorithm in key.algorithms]
    if len(fitting) != 1:
        raise InvalidToken(
            f"{len(fitting)} keys, instead of one, fit the token's algorithm {str(algorithm)[:_SHOWN]!r} and key id"
        )
    return fitting[0]


def _checked_times(claims: Mapping[str, Any], skew_s: int, now_ms: int) -> int:
    """Check a token's times; return the end of its validity in wall-clock ms, including the allowed clock skew."""
    expires_s, not_before_s = _seconds(claims, "exp"), _seconds(claims, "nbf") if "nbf" in claims else 0
    _seconds(claims, "iat")
    now_s = now_ms / 1000
    if now_s >= expires_s + skew_s:
        raise InvalidToken("the token has expired")
    if now_s < not_before_s - skew_s:
        raise InvalidToken("the token is not valid yet")
    return round((expires_s + skew_s) * 1000)


def _seconds(claims: Mapping[str, Any], claim: str) -> float:
    value = claims.get(claim)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= SECONDS_MAX:
        raise InvalidToken(f"the claim {claim} must be a time in seconds")
    return float(value)


def _check_scopes(claims: Mapping[str, Any], claim: str) -> None:
    value = claims.get(claim, [])
    scopes = [value] if isinstance(value, str) else value
    are_texts = isinstance(scopes, list) and all(isinstance(each, str) and each.strip() for each in scopes)
    if not are_texts or len(set(scopes)) != len(scopes):
        raise InvalidToken(f"the claim {claim} must be a string, or a list of different strings")


def _subject(claims: Mapping[str, Any], claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"the claim {claim} must be a string with the name of the user")
    return value


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


class ClientMessage(msgspec.Struct, frozen=True):
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

    def answer(self, token: bytes) -> ServerToken:
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
