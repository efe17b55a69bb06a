"""A backup of the metadata store that comes back while brokers run or are down, and the administrator who then repairs.

What `docs/how-to/recover.md` promises: no record is lost. Running brokers write again what they know. If all were down,
the topics made since the backup wait for `restore-metadata`. Nothing is promised there about topics of which a replica
has left the ISR since the backup: their newest documents come back.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final

from barnabas_broker.metadata.controller.decisions.restored_topics import NotRestored, Restored, restored_topics
from barnabas_broker.metadata.documents import decode, topic_key
from barnabas_broker.metadata.image.image_feed import load
from barnabas_broker.metadata.image.metadata_image import MetadataImage, write_in_order, writes_of
from barnabas_broker.metadata.model import TopicDocument, TopicPartDocument
from barnabas_broker.metadata.store.metadata_store import Document, StoreUnavailable
from barnabas_core.config.broker_config import parse_broker_config
from simulation.cluster import SETTINGS, SimulatedCluster
from simulation.loop import Host
from simulation.store import SimulatedStore

AGE_S_MAX: Final = 6.0
RESTORED_S_MAX: Final = 9.0
"""The longest time until the administrator restores topics; transactions time out meanwhile."""
ATTEMPTS_S: Final = 1.0
DOWN_SHARE: Final = 0.7
"""The share of restorations while all brokers are down."""


class Backups:
    """One backup of the store of a cluster."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._documents: Mapping[str, Document] = {}

    async def take(self, faulty_s: float) -> None:
        """Take the backup some seconds before the faults end, which last so long."""
        await asyncio.sleep(faulty_s - self._random.uniform(0.5, AGE_S_MAX))
        self._documents = dict(self._cluster.store.documents)
        self._cluster.note("a backup of the metadata store is taken")

    def put_back(self) -> None:
        """Put the store back, perhaps while all brokers are down; then no ISR comes back that a replica has left."""
        documents = self._documents
        if self._random.random() < DOWN_SHARE:
            self._cluster.note("all brokers go")
            for broker in self._cluster.brokers:
                broker.kill()
            documents = with_newer_isrs(documents, self._cluster.store.documents)
        self._cluster.note("the metadata store is put back to its backup")
        self._cluster.store.put_back(documents)

    async def restore(self) -> None:
        """Run `restore-metadata` until no topic is missing any more."""
        await asyncio.sleep(self._random.uniform(0, RESTORED_S_MAX))
        while await self._restore_some():
            await asyncio.sleep(ATTEMPTS_S)

    async def _restore_some(self) -> bool:
        """Run the command once; True if it must be run again."""
        store = SimulatedStore(self._cluster.store, Host("admin", self._cluster.loop))
        image = MetadataImage(self._cluster.sizes.document_partitions_max)
        config = parse_broker_config({"node.id": "1"} | SETTINGS | self._cluster.settings)
        try:
            await load(image, store)
            decided = restored_topics(image, config, accepts_loss=False)
            restored = [each for each in decided if isinstance(each, Restored)]
            for each in restored:
                self._cluster.note(f"restore-metadata: {each.document.name}")
                await write_in_order([writes_of(topic_key(each.document.name), each.document, image)], store)
        except StoreUnavailable:
            return True
        for stays in (each for each in decided if isinstance(each, NotRestored)):
            self._cluster.note(f"restore-metadata: {stays.name} is not restored: {stays.why}")
        return bool(decided) or not all(broker.is_serving for broker in self._cluster.brokers)


def with_newer_isrs(backup: Mapping[str, Document], now: Mapping[str, Document]) -> dict[str, Document]:
    """Return a backup, with the documents of now of topics that have a replica that has left the ISR and the ELR."""
    older, newer = _topics_by_key(backup), _topics_by_key(now)
    left = {known.name for key, known in older.items() if key in newer and _has_left(known, newer[key])}
    kept = {key: each for key, each in backup.items() if key not in older or older[key].name not in left}
    return kept | {key: now[key] for key, known in newer.items() if known.name in left}


def _topics_by_key(documents: Mapping[str, Document]) -> dict[str, TopicDocument | TopicPartDocument]:
    decoded = {key: decode(key, each.value) for key, each in documents.items()}
    return {key: each for key, each in decoded.items() if isinstance(each, TopicDocument | TopicPartDocument)}


def _has_left(older: TopicDocument | TopicPartDocument, newer: TopicDocument | TopicPartDocument) -> bool:
    pairs = zip(older.partitions, newer.partitions, strict=False)
    return any(not {*before.isr, *before.elr} <= {*after.isr, *after.elr} for before, after in pairs)
