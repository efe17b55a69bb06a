"""The deletion of topics in two steps: write a tombstone, which decides the deletion, then delete the topic document.

The controller completes deletions that other brokers began, and removes tombstones that all brokers have seen. The
controller also removes unused topic parts. A topic part is a document with further partitions of a topic; a part that
no topic document refers to is left behind if a broker dies between two writes.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Final

from barnabas_broker.metadata.controller.transitions import Planned, Transitions
from barnabas_broker.metadata.documents import tombstone_key, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.metadata.topic_layout import part_keys
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_core.errors import ApiError

FINISHED_AFTER_MS: Final = 5_000
"""The age in ms of a topic's tombstone at which the controller deletes the metadata of the topic, if it still exists.

Normally, the broker that wrote the tombstone deletes the metadata.
"""
KEPT_MS: Final = 600_000
"""The minimum age in ms at which a tombstone is removed.

All brokers must have been alive at the same time for at least as long.
"""
KEPT_MAX: Final = 10_000
"""The number of tombstones that are kept while a broker is down.

The oldest tombstones are dropped first. If the tombstone of a topic was dropped, a broker that returns later sets its
log of the topic aside, instead of deleting the log.
"""

PARTS_LOOKED_AT_EVERY_MS: Final = 60_000
"""The interval in ms between searches for unused topic parts: stored partitions to which no topic document refers.

An unused topic part is deleted after KEPT_MS, and not at once, because a broker may be about to write the topic
document that refers to the topic part. If the topic has neither a topic document nor a tombstone, the topic document
was lost, and a broker that is fenced may still have it in memory. The topic part is then deleted only after all brokers
have been alive at the same time for KEPT_MS.
"""

log = logging.getLogger(__name__)


def tombstone_of(topic: TopicDocument, now_ms: int) -> TombstoneDocument:
    """Return the tombstone of a deleted topic."""
    return TombstoneDocument(topic.name, topic.topic_id, now_ms, len(topic.partitions))


async def delete_documents(
    topics: Mapping[str, TopicDocument], transitions: Transitions, image: MetadataImage
) -> dict[str, Planned | ApiError]:
    """Delete the metadata of the topics in `topics` that have a tombstone; keep new topics of the same names."""

    def decide(names: Sequence[str]) -> dict[str, Planned | ApiError]:
        found = {name: image.buried.get(name) for name in names}
        return {
            name: Planned(topic_key(name), None)
            for name, topic in found.items()
            if topic is not None and topic.topic_id == topics[name].topic_id
        }

    return await transitions.carry_out(list(topics), decide)


class Deletions:
    """The controller's work for the deletion of topics: completing deletions, and removing tombstones and unused parts.

    An unused part is a document with partitions that no topic document refers to.
    """

    def __init__(self, image: MetadataImage, transitions: Transitions, clock: Clock) -> None:
        self._image = image
        self._transitions = transitions
        self._clock = clock
        self._all_alive_since_ms: int | None = None
        self._unnamed_since_ms: dict[str, int] = {}
        """The keys of topic parts that no topic refers to, each with the monotonic time in ms of its discovery."""
        self._parts_seen_at_ms = 0

    def begin(self) -> None:
        """Restart the retention periods of tombstones and of unused metadata of partitions.

        This is necessary because a new controller does not know how long all brokers have been alive.
        """
        self._all_alive_since_ms = None
        self._unnamed_since_ms.clear()

    async def tend(self) -> None:
        """Complete deletions of topics, and remove the tombstones and topic parts that no broker needs."""
        image, now_ms = self._image, monotonic_ms(self._clock)
        if len(image.live) < len(image.brokers) or any(broker.dirs_away for broker in image.brokers.values()):
            # Tombstones are kept, because an offline broker or log dir may still have a log of a deleted topic.
            self._all_alive_since_ms = None
        elif self._all_alive_since_ms is None:
            self._all_alive_since_ms = now_ms
        if image.buried:
            await self._finish()
        if image.tombstones:
            await self._forget(now_ms)
        if image.parts and self._parts_seen_at_ms + PARTS_LOOKED_AT_EVERY_MS <= now_ms:
            self._parts_seen_at_ms = now_ms
            await self._remove_unnamed_parts(now_ms)

    async def _finish(self) -> None:
        image, now_ms = self._image, self._clock.now_ms()
        left = {
            name: topic
            for name, topic in image.buried.items()
            if image.tombstones[topic.topic_id].deleted_at_ms + FINISHED_AFTER_MS <= now_ms
        }
        for name in await delete_documents(left, self._transitions, image) if left else ():
            log.info("deleting topic %s, whose deletion another broker began", name)

    async def _forget(self, now_ms: int) -> None:
        keys = [tombstone_key(tombstone.topic_id) for tombstone in self._old(now_ms)]
        if keys:
            await self._transitions.carry_out(keys, lambda left: {key: Planned(key, None) for key in left})

    async def _remove_unnamed_parts(self, now_ms: int) -> None:
        self._unnamed_since_ms = {key: self._unnamed_since_ms.get(key, now_ms) for key in sorted(self._unnamed())}
        old = [key for key, since_ms in self._unnamed_since_ms.items() if since_ms + KEPT_MS <= now_ms]
        known = {head.topic_id for head in self._heads()} | self._image.tombstones.keys()
        all_alive = self._all_alive_for_long(now_ms)
        due = [key for key in old if all_alive or self._image.parts[key].topic_id in known]

        def decide(left: Sequence[str]) -> dict[str, Planned | ApiError]:
            # Search again, because a topic document that was written in the meantime may refer to a part in `due`.
            unnamed = self._unnamed()
            return {key: Planned(key, None) for key in left if key in unnamed}

        if due:
            log.info(
                "deleting %d keys with the metadata of partitions, because no topic refers to these keys", len(due)
            )
            await self._transitions.carry_out(due, decide)

    def _unnamed(self) -> Set[str]:
        return self._image.parts.keys() - {key for head in self._heads() for key in part_keys(head)}

    def _heads(self) -> Iterator[TopicDocument]:
        image = self._image
        return chain(image.topics.values(), image.buried.values(), image.incomplete.values())

    def _all_alive_for_long(self, now_ms: int) -> bool:
        return self._all_alive_since_ms is not None and self._all_alive_since_ms + KEPT_MS <= now_ms

    def _old(self, now_ms: int) -> list[TombstoneDocument]:
        kept, left = self._image.tombstones.values(), {each.topic_id for each in self._image.buried.values()}
        ended = [each for each in kept if each.topic_id not in left]
        if self._all_alive_for_long(now_ms):
            end_ms = self._clock.now_ms() - KEPT_MS
            return [each for each in ended if each.deleted_at_ms <= end_ms]
        if len(kept) <= KEPT_MAX:
            return []
        return sorted(ended, key=lambda each: each.deleted_at_ms)[: len(kept) - KEPT_MAX]
