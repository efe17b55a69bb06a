"""Keeps an image current: lists once, then follows the watch; lists anew where history is gone or the store was."""

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, MetadataStore, StoreUnavailable

RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


async def load(image: MetadataImage, store: MetadataStore) -> None:
    """The state of now. Raises StoreUnavailable."""
    image.apply_listing(await store.listing(""))


class ImageFeed:
    """`passes` counts how often it went on: what watches it sees whether it hangs."""

    def __init__(self, image: MetadataImage, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._image = image
        self._store = store
        self._sleep = sleep
        self._known_revision = 0
        self.passes = 0

    async def follow(self) -> None:
        """Applies all changes to a loaded image, until it is cancelled or the store is closed.

        While the store is away the image stays as it is: brokers go on serving what they know. That is said once.
        """
        is_away = is_listed_in_vain = False
        while True:
            try:
                async for changes in self._store.watch("", self._image.revision):
                    if is_away:
                        log.info("the metadata store answers again")
                        is_away = False
                    self._image.apply_changes(changes)
                    is_listed_in_vain = False
                    self.passes += 1
                return
            except HistoryCompacted as error:
                if is_listed_in_vain:  # The store forgets faster than it tells: listing on and on would not help it.
                    await self._sleep(RETRY_S)
                log.warning("metadata is listed anew: %s", error)
                await self._load_again()
                is_listed_in_vain = True
            except StoreUnavailable as error:
                if not is_away:
                    log.warning("the metadata store does not answer, trying again until it does: %s", error)
                    is_away = True
                await self._sleep(RETRY_S)
            self.passes += 1

    async def _load_again(self) -> None:
        try:
            await load(self._image, self._store)
        except StoreUnavailable as error:
            log.warning("the metadata store does not answer, trying again: %s", error)
            await self._sleep(RETRY_S)

    async def probe(self) -> None:
        """Learn of a revision that the image has to reach: without changes a feed that hangs looks as any other."""
        with contextlib.suppress(StoreUnavailable):
            self._known_revision = max(self._known_revision, await self._store.latest_revision())

    def progress(self) -> object:
        """Another value whenever the feed has gone on, or has nothing to do."""
        return object() if self._image.revision >= self._known_revision else self.passes
