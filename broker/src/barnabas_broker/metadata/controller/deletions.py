"""The deletion of topics in two writes: a tombstone, by which it is decided, then the topic's document is deleted.

The controller ends what another broker began, and removes tombstones that everybody has seen. It also removes parts
that no topic names, because their writer died before it wrote the topic, or had just deleted that.
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
"""The time after which the controller ends a deletion: the writer of a tombstone deletes the topic at once, if alive.
"""
KEPT_MS: Final = 600_000
"""A tombstone stays so long, and until all brokers have been alive together for so long."""
KEPT_MAX: Final = 10_000
"""The tombstones kept while a broker is down for good.

The oldest are dropped first; a log that comes back after that is set aside, not deleted.
"""

PARTS_LOOKED_AT_EVERY_MS: Final = 60_000
"""The interval between looks for parts that no topic names.

They are kept for KEPT_MS: their writer may be about to write the topic. Those of an unknown topic stay until all
brokers have been alive together for so long: its document may have vanished, and a broker that is away remembers it.
"""

log = logging.getLogger(__name__)


def tombstone_of(topic: TopicDocument, now_ms: int) -> TombstoneDocument:
    """Return the tombstone of a deleted topic."""
    return TombstoneDocument(topic.name, topic.topic_id, now_ms, len(topic.partitions))


async def delete_documents(
    topics: Mapping[str, TopicDocument], transitions: Transitions, image: MetadataImage
) -> dict[str, Planned | ApiError]:
    """Delete the documents of these topics that have a tombstone; not those of a new topic of the same name."""

    def decide(names: Sequence[str]) -> dict[str, Planned | ApiError]:
        found = {name: image.buried.get(name) for name in names}
        return {
            name: Planned(topic_key(name), None)
            for name, topic in found.items()
            if topic is not None and topic.topic_id == topics[name].topic_id
        }

    return await transitions.carry_out(list(topics), decide)


class Deletions:
    """The controller's part in deletions; `tend` runs periodically, at a cost that grows with the tombstones."""

    def __init__(self, image: MetadataImage, transitions: Transitions, clock: Clock) -> None:
        self._image = image
        self._transitions = transitions
        self._clock = clock
        self._all_alive_since_ms: int | None = None
        self._unnamed_since_ms: dict[str, int] = {}
        """The parts that no topic names, by key, with the time when that was first seen."""
        self._parts_seen_at_ms = 0

    def begin(self) -> None:
        """Begin the work of the controller on this broker."""
        self._all_alive_since_ms = None
        self._unnamed_since_ms.clear()

    async def tend(self) -> None:
        """Complete the deletions that were begun, and remove the tombstones that all brokers have seen."""
        image, now_ms = self._image, monotonic_ms(self._clock)
        if len(image.live) < len(image.brokers) or any(broker.dirs_away for broker in image.brokers.values()):
            self._all_alive_since_ms = None  # An offline broker or log dir may still have a log of a deleted topic.
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
            log.info("deleting topic %s, as was decided before", name)

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
            unnamed = self._unnamed()  # Look again: a concurrent write may refer to a part now.
            return {key: Planned(key, None) for key in left if key in unnamed}

        if due:
            log.info("deleting %d parts of topics that no topic refers to", len(due))
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
