"""The required claims of tokens, and the current keys of a JWK set, fetched periodically.

The keys are fetched earlier if a token names an unknown key. This module imports neither PyJWT nor cryptography,
because every broker imports it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import msgspec

from barnabas_core.clock import LoopClock

if TYPE_CHECKING:
    from barnabas_broker.security.sasl.key_set import TokenKey


log = logging.getLogger(__name__)

EARLIEST_S: Final = 10.0
"""The shortest time in seconds from a successful fetch to the next, so that made-up key ids cause few fetches."""


class TokenRules(msgspec.Struct, frozen=True):
    """The required values of claims, the allowed clock skew in seconds, and the names of the scope and user claims."""

    audiences: tuple[str, ...]
    """A token must name at least one of these audiences; an empty tuple allows any audience."""
    issuer: str | None
    skew_s: int
    scope_claim: str = "scope"
    subject_claim: str = "sub"


class KeysUnavailable(Exception):
    """The error that the keys could not be fetched; the message has the reason."""


class FetchTimes(msgspec.Struct, frozen=True):
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
