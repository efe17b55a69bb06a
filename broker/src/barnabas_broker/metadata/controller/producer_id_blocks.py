"""Producer ids, allocated in blocks: no id is ever assigned twice, even if a broker is killed at any time."""

from typing import Final

import msgspec

from barnabas_broker.metadata.documents import PRODUCER_IDS_KEY, decode_if_readable, encode
from barnabas_broker.metadata.model import ProducerIdsDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, VersionConflict
from barnabas_core.config.definitions import LONG_MAX

BLOCK_SIZE: Final = 1000


async def allocate_block(store: MetadataStore, first_free: int, now_ms: int) -> range:
    """The next 1000 ids, this caller's alone: they are written off before they are known. Raises StoreUnavailable.

    `first_free` is known to be free, whatever the store says: it may have been put back to an older copy. Where the
    document is lost or cannot be read the ids go on from the time: no cluster gives out one each millisecond.
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
