"""The feed of the metadata image: a listing of the store, followed by the changes of a watch.

If the store no longer keeps the history that the watch needs, the feed lists the store again.
"""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import (
    Change,
    Changes,
    Document,
    HistoryCompacted,
    MetadataStore,
    StoreUnavailable,
)
from barnabas_core.loop_turns import IMAGE_BYTES, IMAGE_DOCUMENTS, next_turn, slices

RETRY_S: Final = 0.5

Written = TypeVar("Written", Change, Document)

log = logging.getLogger(__name__)


async def load(image: MetadataImage, store: MetadataStore) -> None:
    """Load the present state of the store into the image. Raises StoreUnavailable."""
    image.apply_listing(await store.listing())


async def catch_up(image: MetadataImage, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Wait until the image is as new as the store was at the call; try again while the store does not answer."""
    while True:
        try:
            await image.reached(await store.latest_revision())
        except StoreUnavailable as error:
            log.warning("the metadata store does not answer: %s", error)
            await sleep(RETRY_S)
        else:
            return


class ImageFeed:
    """The reader of the metadata store that keeps one image up to date; the watchdog sees its progress in `passes`."""

    def __init__(self, image: MetadataImage, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._image = image
        self._store = store
        self._sleep = sleep
        self._known_revision = 0
        self.passes = 0

    async def follow(self) -> None:
        """Apply all changes to a loaded image, until the task is cancelled or the store is closed.

        While the store does not answer, the image keeps its state, and brokers continue with the last known
        metadata.
        """
        is_away = is_listed_in_vain = False
        while True:
            try:
                async for changes in self._store.watch(self._image.revision):
                    if is_away:
                        log.info("the metadata store answers again")
                        is_away = False
                    await self._apply(changes)
                    is_listed_in_vain = False
                    self.passes += 1
                return
            except HistoryCompacted as error:
                if is_listed_in_vain:  # The store compacts its history faster than this feed reads it.
                    await self._sleep(RETRY_S)
                log.warning("the broker lists all metadata again, because its watch cannot continue: %s", error)
                await self._load_again()
                is_listed_in_vain = True
            except StoreUnavailable as error:
                if not is_away:
                    log.warning(
                        "the metadata store does not answer; the broker tries again until the store answers: %s", error
                    )
                    is_away = True
                await self._sleep(RETRY_S)
            self.passes += 1

    async def _apply(self, changes: Changes) -> None:
        """Apply changes in slices, between which other tasks run; only the last slice sets the new revision."""
        last: Sequence[Change] = ()
        for some in _slices(changes.changes):
            if last:
                self._image.apply_changes(Changes(self._image.revision, last))
                await self._next_turn()
            last = some
        self._image.apply_changes(Changes(changes.revision, last))

    async def _next_turn(self) -> None:
        self.passes += 1
        await next_turn()

    async def _load_again(self) -> None:
        """List the store again, and apply the differences in slices, between which other tasks run."""
        try:
            listing = await self._store.listing()
            found = [each for each in listing.documents if not self._image.has(each)]
            for some in _slices(found):
                self._image.apply_listed(some)
                await self._next_turn()
            self._image.apply_listing(listing)
        except StoreUnavailable as error:
            log.warning("the metadata store does not answer; the broker tries again: %s", error)
            await self._sleep(RETRY_S)

    async def probe(self) -> None:
        """Ask the store for its latest revision, so that the watchdog can detect a feed that is stuck.

        A feed is stuck if its image stays behind that revision and `passes`, the count of its steps, does not rise.
        """
        with contextlib.suppress(StoreUnavailable):
            self._known_revision = max(self._known_revision, await self._store.latest_revision())

    def progress(self) -> object:
        """Return a value for the watchdog; two calls return equal values if the feed is behind and made no progress."""
        return object() if self._image.revision >= self._known_revision else self.passes


def _slices(written: Sequence[Written]) -> Iterator[Sequence[Written]]:
    return slices(written, lambda each: len(each.value or b""), IMAGE_DOCUMENTS, IMAGE_BYTES)
