"""Keeps an image current: lists once, then follows the watch; lists anew where history is gone or the store was."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.store import HistoryCompacted, MetadataStore, StoreUnavailable

RETRY_S: Final = 0.5

log = logging.getLogger(__name__)


async def load(image: MetadataImage, store: MetadataStore) -> None:
    """The state of now. Raises StoreUnavailable."""
    image.apply_listing(await store.listing(""))


async def follow(image: MetadataImage, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    """Applies all changes to a loaded image, until it is cancelled or the store is closed.

    While the store is away the image stays as it is: brokers go on serving what they know. That is said once.
    """
    is_away = False
    while True:
        try:
            async for changes in store.watch("", image.revision):
                if is_away:
                    log.info("the metadata store answers again")
                    is_away = False
                image.apply_changes(changes)
            return
        except HistoryCompacted as error:
            log.warning("metadata is listed anew: %s", error)
            await _load_again(image, store, sleep)
        except StoreUnavailable as error:
            if not is_away:
                log.warning("the metadata store does not answer, trying again until it does: %s", error)
                is_away = True
            await sleep(RETRY_S)


async def _load_again(image: MetadataImage, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
    try:
        await load(image, store)
    except StoreUnavailable as error:
        log.warning("the metadata store does not answer, trying again: %s", error)
        await sleep(RETRY_S)
