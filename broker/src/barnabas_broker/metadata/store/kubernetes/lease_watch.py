"""The watch of a cluster's leases, so that an idle broker sends the API server only its own renewals."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from barnabas_broker.metadata.store.kubernetes.api import ApiRequests
from barnabas_broker.metadata.store.kubernetes.leases import LeaseList, LeaseObject, Observations
from barnabas_broker.metadata.store.kubernetes.watching import parse_event
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, StoreUnavailable
from barnabas_core.clock import Clock, monotonic_ms

WATCH_S: Final = 300
RETRY_S: Final = 1.0
CURRENT_MS: Final = 5_000
"""The time in ms without any event after which the watch counts as broken.

A working watch reports at least the renewals of this broker's own lease.
"""

log = logging.getLogger(__name__)


_LEASES: Final = msgspec.json.Decoder(LeaseObject)


class LeaseWatch:
    """The watch of a cluster's leases, which the first call of `is_current` starts.

    The watch calls `see`, which lists all leases and puts them into `observations`, before the watch follows changes.
    `see` raises StoreUnavailable.
    """

    def __init__(
        self,
        api: ApiRequests,
        path: str,
        ours: Mapping[str, str],
        see: Callable[[], Awaitable[LeaseList]],
        observations: Observations,
        clock: Clock,
    ) -> None:
        self._api = api
        self._path = path
        self._ours = ours
        self._see = see
        self._observations = observations
        self._clock = clock
        self._heard_at_ms: int | None = None
        self._task: asyncio.Task[None] | None = None

    def is_current(self) -> bool:
        """True if the watch has received an event within CURRENT_MS. The first call starts the watch."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return self._heard_at_ms is not None and monotonic_ms(self._clock) < self._heard_at_ms + CURRENT_MS

    async def close(self) -> None:
        """End the watch, and wait for its task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        why = ""
        while True:
            try:
                revision = (await self._see()).metadata.resource_version
                while True:
                    revision = await self._follow(revision)
            except (StoreUnavailable, HistoryCompacted) as error:
                if str(error) != why:
                    log.warning("the leases cannot be watched, so the broker lists them instead: %s", error)
                why = str(error)
            self._heard_at_ms = None
            await asyncio.sleep(RETRY_S)

    async def _follow(self, revision: str) -> str:
        """Follow the leases until the server ends the watch; return the revision to continue from."""
        query = {
            **self._ours,
            "watch": "1",
            "allowWatchBookmarks": "1",
            "resourceVersion": revision,
            "timeoutSeconds": str(WATCH_S),
        }
        async for lines in self._api.stream(self._path, query):
            revision = self._hear(lines) or revision
        return revision

    def _hear(self, lines: Sequence[bytes]) -> str:
        revision = ""
        for line in filter(None, lines):
            kind, found = parse_event(line, lambda kind, found: (kind, _LEASES.decode(found)))
            revision = found.metadata.resource_version
            if kind != "BOOKMARK":
                self._observations.see_one(found, is_gone=kind == "DELETED")
            self._heard_at_ms = monotonic_ms(self._clock)
        return revision
