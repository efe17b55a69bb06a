"""A backup of the metadata store that comes back while brokers run or are down, and the administrator who then repairs.

What `docs/how-to/recover.md` promises: no record is lost. Running brokers write again what they know. If all were down,
the topics made since the backup wait for `restore-metadata`. A client that did not know yet that its topic existed may
have made another one of the same name meanwhile. Then the logs of the first wait for `forget-topic`.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final
from uuid import UUID

from barnabas_broker.app.forget_topic import documents_that_forget
from barnabas_broker.app.store_command import OpenMetadata
from barnabas_broker.metadata.controller.decisions.create_topics import NotRestored, Restored, restored_topics
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.image.image_feed import load
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import stray_topics
from barnabas_broker.metadata.store.metadata_store import Document, StoreUnavailable
from barnabas_broker.storage.disk.checkpoints import LOG
from barnabas_core import kafka_uuid
from barnabas_core.config.broker_config import parse_broker_config
from simulation.cluster import SETTINGS, SimulatedBroker, SimulatedCluster
from simulation.loop import Host
from simulation.store import SimulatedStore

AGE_S_MAX: Final = 6.0
RESTORED_S_MAX: Final = 9.0
"""The longest time until the administrator restores topics; transactions time out meanwhile."""
ATTEMPTS_S: Final = 1.0
BETWEEN_STARTS_S_MAX: Final = 1.0
"""So short that all brokers have started within a session."""
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

    async def put_back(self) -> None:
        """Put the store back, perhaps while all brokers are down; then they start one after the other."""
        brokers = list(self._cluster.brokers) if self._random.random() < DOWN_SHARE else []
        if brokers:
            self._cluster.note("all brokers go")
        for broker in brokers:
            broker.kill()
        self._cluster.note("the metadata store is put back to its backup")
        self._cluster.store.put_back(self._documents)
        self._cluster.repair()
        self._random.shuffle(brokers)
        for broker in brokers:
            broker.wanted = True
            broker.start()
            await asyncio.sleep(self._random.uniform(0, BETWEEN_STARTS_S_MAX))

    async def restore(self) -> None:
        """Run `restore-metadata` until no topic is missing any more, and `forget-topic` where it says so."""
        await asyncio.sleep(self._random.uniform(0, RESTORED_S_MAX))
        while await self._restore_some():
            await asyncio.sleep(ATTEMPTS_S)

    async def _restore_some(self) -> bool:
        """Run the command once; True if it must be run again."""
        host = Host("admin", self._cluster.loop)
        store = SimulatedStore(self._cluster.store, host)
        image = MetadataImage(self._cluster.sizes.document_partitions_max)
        config = parse_broker_config({"node.id": "1"} | SETTINGS | self._cluster.settings)
        metadata = OpenMetadata(image, store, config, host.now_ms())
        try:
            await load(image, store)
            decided = restored_topics(image, config, accepts_loss=False)
            for each in (each for each in decided if isinstance(each, Restored)):
                self._cluster.note(f"restore-metadata: {each.document.name}")
                await metadata.write({topic_key(each.document.name): each.document})
            for stays in (each for each in decided if isinstance(each, NotRestored)):
                self._cluster.note(f"restore-metadata: {stays.name} is not restored: {stays.why}")
                if stays.name in image.topics and self._has_no_records(stays.topic_id):
                    await self._forget(stays, metadata)
        except StoreUnavailable:
            return True
        return bool(decided) or not all(broker.is_serving for broker in self._cluster.brokers)

    def _has_no_records(self, topic_id: UUID) -> bool:
        """True if all brokers run, and no segment of the topic has a byte."""
        return all(broker.is_serving and not self._records_bytes(broker, topic_id) for broker in self._cluster.brokers)

    def _records_bytes(self, broker: SimulatedBroker, topic_id: UUID) -> int:
        assert broker.node is not None, "the broker runs"
        strays = broker.node.handler_environment.logs.strays
        files = (file for stray in strays if stray.topic_id == topic_id for file in broker.disk.scan(stray.directory))
        return sum(file.size_bytes for file in files if file.name.endswith(LOG))

    async def _forget(self, topic: NotRestored, metadata: OpenMetadata) -> None:
        """Run `forget-topic` for a topic whose name another topic has now."""
        found = [each for each in stray_topics(metadata.image) if each.topic_id == topic.topic_id]
        topic_id = kafka_uuid.to_text(topic.topic_id)
        self._cluster.note(f"forget-topic {topic_id}: {topic.name}")
        await metadata.write(documents_that_forget(metadata, topic_id, found))
