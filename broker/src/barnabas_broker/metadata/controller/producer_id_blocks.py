"""Producer ids, given out in blocks: no id is ever given twice, whoever is killed when."""

from typing import Final

import msgspec

from barnabas_broker.metadata.documents import PRODUCER_IDS_KEY, MalformedDocument, decode, encode
from barnabas_broker.metadata.model import ProducerIdsDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, VersionConflict
from barnabas_core.config.definitions import LONG_MAX

BLOCK_SIZE: Final = 1000


async def allocate_block(store: MetadataStore, first_free: int = 0) -> range:
    """The next 1000 ids, this caller's alone: they are written off before they are known. Raises StoreUnavailable.

    `first_free` is known to be free, whatever the store says: it may have been put back to an older copy.
    """
    while True:
        found = await store.get(PRODUCER_IDS_KEY)
        known = ProducerIdsDocument(0) if found is None else _decoded(found.value)
        first = max(known.next_producer_id, first_free)
        assert first <= LONG_MAX - BLOCK_SIZE, "2^63 producer ids are used up"
        after = msgspec.structs.replace(known, next_producer_id=first + BLOCK_SIZE)
        try:
            await store.put(PRODUCER_IDS_KEY, encode(after), ABSENT if found is None else found.version)
        except VersionConflict:
            continue
        return range(first, first + BLOCK_SIZE)


def _decoded(value: bytes) -> ProducerIdsDocument:
    document = decode(PRODUCER_IDS_KEY, value)
    if not isinstance(document, ProducerIdsDocument) or document.next_producer_id < 0:
        raise MalformedDocument(f"{PRODUCER_IDS_KEY}: {value!r} has no next_producer_id of at least 0")
    return document
