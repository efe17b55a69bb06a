"""The detection of pauses in which other brokers may have taken over the partitions of this process.

A leader that was paused continues as if it still led, with log ends and committed offsets that may be outdated. After a
pause of half a session, this process therefore reads the latest metadata before it answers. A failure of the metadata
store is no pause, because no leader is elected without the store.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from barnabas_broker.metadata.image.image_feed import catch_up
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import MetadataStore
from barnabas_core.clock import Clock, Timers

TICKS_IN_LIMIT: Final = 4

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
        self._now_s = clock.monotonic_s
        self._timers = timers
        self._sleep = sleep
        self._spawn = spawn
        self._awake_until_s = 0.0
        self._is_looking = False

    def start(self) -> None:
        """Start the detection. The process counts as suspended until this method is called."""
        self._awake_until_s = self._now_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    def is_awake(self) -> bool:
        """True if this process was not suspended since it last read the latest metadata.

        Otherwise this method starts a task that reads the latest metadata. The broker calls this method for each
        partition of a request, so it must be cheap.
        """
        return self._now_s() <= self._awake_until_s or self._falls_asleep()

    def _falls_asleep(self) -> bool:
        if not self._is_looking:
            self._is_looking = True
            log.warning("this process was suspended; before it answers clients, it checks which brokers lead now")
            self._spawn(self._look())
        return False

    def _tick(self) -> None:
        if self.is_awake():
            self._awake_until_s = self._now_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    async def _look(self) -> None:
        await catch_up(self._image, self._store, self._sleep)
        self._is_looking = False
        self._awake_until_s = self._now_s() + self._limit_s
