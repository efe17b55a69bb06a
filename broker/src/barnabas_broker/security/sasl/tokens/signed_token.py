"""Verify a token (JWT, RFC 7519): its signature with PyJWT, then its times and its other claims.

A token can name only an algorithm that its key permits (`key_set.ALGORITHMS`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt

from barnabas_broker.security.sasl.mechanism import Identity
from barnabas_broker.security.sasl.tokens.key_set import TokenKey
from barnabas_core.clock import LoopClock


class TokenRules(NamedTuple):
    """The required values of claims, the allowed clock skew in seconds, and the names of the scope and user claims."""

    audiences: tuple[str, ...]
    """A token must name at least one of these audiences; an empty tuple allows any audience."""
    issuer: str | None
    skew_s: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"


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


log = logging.getLogger(__name__)

EARLIEST_S: Final = 10.0
"""The shortest time in seconds from a successful fetch to the next, so that made-up key ids cause few fetches."""


class KeysUnavailable(Exception):
    """The error that the keys could not be fetched; the message has the reason."""


class FetchTimes(NamedTuple):
    """The delays before the next fetch: `refresh_s` after a success, `backoff_s` after a failure.

    The delay doubles with each further failure, up to `backoff_s_max`.
    """

    refresh_s: float
    backoff_s: float
    backoff_s_max: float


class TokenKeys:
    """The keys that verify tokens, fetched from a URL. If a fetch fails, the keys of an earlier fetch remain in use."""

    def __init__(
        self, url: str, fetch: "Callable[[], Awaitable[tuple[TokenKey, ...]]]", times: FetchTimes, clock: LoopClock
    ) -> None:
        self.url = url
        self.current: tuple[TokenKey, ...] = ()
        self._fetch = fetch
        self._times = times
        self._clock = clock
        self._missed = asyncio.Event()
        self._failures = 0

    def miss(self) -> None:
        """Make `follow` fetch the keys before `refresh_s` has passed, because a token names an unknown key."""
        self._missed.set()

    async def load(self) -> None:
        """Fetch and use the current keys. Raise KeysUnavailable if the fetch fails."""
        try:
            self.current = await self._fetch()
        except KeysUnavailable:
            self._failures += 1
            raise
        self._failures = 0

    async def follow(self) -> None:
        """Fetch the keys periodically until the task is cancelled; a call of `miss` makes the next fetch earlier."""
        while True:
            await self._rest()
            try:
                await self.load()
            except KeysUnavailable as error:
                if self._failures == 1:
                    log.warning(
                        "the keys at %s could not be fetched (%s); the broker tries again, and still "
                        "uses the %d known keys",
                        self.url,
                        error,
                        len(self.current),
                    )

    async def _rest(self) -> None:
        times = self._times
        if self._failures:
            doubled_s = times.backoff_s * 2.0 ** min(self._failures - 1, 30)
            await self._clock.sleep(min(doubled_s, times.backoff_s_max))
            return
        pause_s = min(EARLIEST_S, times.refresh_s)
        await self._clock.sleep(pause_s)
        try:
            async with self._clock.timeout(times.refresh_s - pause_s):
                await self._missed.wait()
        except TimeoutError:
            pass
        self._missed.clear()
