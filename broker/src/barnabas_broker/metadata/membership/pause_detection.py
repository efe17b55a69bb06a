"""The detection of pauses so long that others may have taken over from this process.

A leader that was paused goes on, when it wakes, as if it still led: what it then says of the ends of its logs and of
committed offsets may be long out of date. So after a pause of half a session it looks at the metadata first. While the
store is away nobody counts as paused: that needs no look, for nobody is elected either.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_core.clock import Clock, Timers

TICKS_IN_LIMIT: Final = 4
RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


class PauseDetection:
    """The detection of pauses longer than `limit_ms`, of this process or of the whole machine."""

    def __init__(
        self,
        store: MetadataStore,
        image: MetadataImage,
        limit_ms: int,
        clock: Clock,
        timers: Timers,
        sleep: Callable[[float], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._store = store
        self._image = image
        self._limit_s = limit_ms / 1000
        self._clock = clock
        self._timers = timers
        self._sleep = sleep
        self._spawn = spawn
        self._awake_until_s = 0.0
        self._is_looking = False

    def start(self) -> None:
        """Start the ticks; until then the process counts as suspended."""
        self._awake_until_s = self._clock.monotonic_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    def is_awake(self) -> bool:
        """True if this process was not suspended since it last checked who leads. Hot: called once a partition."""
        return self._clock.monotonic_s() <= self._awake_until_s or self._falls_asleep()

    def _falls_asleep(self) -> bool:
        if not self._is_looking:
            self._is_looking = True
            log.warning("this process was suspended; before it answers, it checks which brokers lead now")
            self._spawn(self._look())
        return False

    def _tick(self) -> None:
        if self.is_awake():
            self._awake_until_s = self._clock.monotonic_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    async def _look(self) -> None:
        while True:
            try:
                await self._image.reached(await self._store.latest_revision())
            except StoreUnavailable as error:
                log.warning("the metadata store does not answer: %s", error)
                await self._sleep(RETRY_S)
            else:
                break
        self._is_looking = False
        self._awake_until_s = self._clock.monotonic_s() + self._limit_s
