"""The keys of one JWK set as they are now: fetched again after a while, and earlier if a token names an unknown key."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas_core.clock import LoopClock

if TYPE_CHECKING:
    from barnabas_broker.security.sasl.tokens.key_set import TokenKey

log = logging.getLogger(__name__)

EARLIEST_S: Final = 10.0
"""The shortest time between two fetches, so that tokens with made-up key ids cannot flood the endpoint."""


class KeysUnavailable(Exception):
    """The error that keys could not be fetched; the message says why."""


class FetchTimes(NamedTuple):
    """The times between fetches: after one that went well, and the first and the longest after one that failed."""

    refresh_s: float
    backoff_s: float
    backoff_s_max: float


class TokenKeys:
    """The keys of one URL. Those of the last successful fetch stay in use while later ones fail."""

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
        """Fetch soon, for a token names a key that is not here."""
        self._missed.set()

    async def load(self) -> None:
        """Fetch the keys and use them from now on. Raises KeysUnavailable."""
        try:
            self.current = await self._fetch()
        except KeysUnavailable:
            self._failures += 1
            raise
        self._failures = 0

    async def follow(self) -> None:
        """Keep the keys fresh until it is cancelled."""
        while True:
            await self._rest()
            try:
                await self.load()
            except KeysUnavailable as error:
                if self._failures == 1:
                    log.warning(
                        "%s: %s; trying again; the %d known keys are used meanwhile", self.url, error, len(self.current)
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
