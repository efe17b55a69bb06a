"""The allocation of producer ids in blocks. No id is assigned twice, even if a broker is killed at any time."""

from typing import Final

import msgspec

from barnabas_broker.metadata.documents import PRODUCER_IDS_KEY, decode_if_readable, encode
from barnabas_broker.metadata.model import ProducerIdsDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, VersionConflict
from barnabas_core.config.definitions import LONG_MAX

BLOCK_SIZE: Final = 1000


async def allocate_block(store: MetadataStore, first_free: int, now_ms: int) -> range:
    """Return the next block of ids, which no other caller gets. Raises StoreUnavailable if the store does not answer.

    The block is written to the store before it is returned. All ids are at least `first_free`, because the store
    may have been restored from an older backup. If the next id in the store is lost or unreadable, the next id is the
    wall-clock time in milliseconds, which exceeds all earlier ids, because no cluster allocates an id per millisecond
    on average.
    """
    while True:
        found = await store.get(PRODUCER_IDS_KEY)
        document = None if found is None else decode_if_readable(PRODUCER_IDS_KEY, found.value)
        known = document if isinstance(document, ProducerIdsDocument) else ProducerIdsDocument(now_ms)
        first = max(known.next_producer_id, first_free)
        assert first <= LONG_MAX - BLOCK_SIZE, "all 2^63 producer ids are used up"
        after = msgspec.structs.replace(known, next_producer_id=first + BLOCK_SIZE)
        try:
            await store.put(PRODUCER_IDS_KEY, encode(after), ABSENT if found is None else found.version)
        except VersionConflict:
            continue
        return range(first, first + BLOCK_SIZE)
