"""The deletion of topics in two steps: write a tombstone, which decides the deletion, then delete the topic document.

The controller completes deletions that other brokers began, and removes tombstones that all brokers have seen. The
controller also removes unused topic parts. A topic part is a document with further partitions of a topic; a part that
no topic document refers to is left behind if a broker dies between two writes.

The repair of the metadata store from the metadata image of a broker: missing or outdated documents are rewritten. A
metadata document that vanished although nobody deleted the document is lost (`MetadataImage.lost`). The controller
rewrites lost documents at once. The other brokers wait a moment, and then rewrite the documents that are still
lost, because a controller that has just started may not have had these documents in its image.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Final, NamedTuple, TypeVar

from barnabas_broker.metadata.documents import AnyDocument, ImageChange, part_keys, tombstone_key, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage, write_in_order, writes_of
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, StoreUnavailable, VersionConflict
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import WRITTEN_ITEMS, WRITTEN_PARTITIONS, Steps, next_turn, slices

ATTEMPTS_MAX: Final = 20

log = logging.getLogger(__name__)

Item = TypeVar("Item", bound=Hashable)


class Planned(NamedTuple):
    """A metadata document to write under `key`; a `document` of None deletes the key.

    A topic is one document here, even if the store keeps the topic in several documents.
    """

    key: str
    document: AnyDocument | None


Decide = Callable[[Sequence[Item]], Mapping[Item, Planned | ApiError]]
"""A function that decides from the current image how each item, such as a topic, changes.

The function must not wait. Items that do not change are left out of the result.
"""


def each(decide: Callable[[Item], Planned]) -> Decide[Item]:
    """Return a function that calls `decide` for each item, such as a topic.

    If `decide` raises an ApiError, the error is the result for that item.
    """

    def decide_one(item: Item) -> Planned | ApiError:
        try:
            return decide(item)
        except ApiError as error:
            return error.with_traceback(None)  # A traceback would keep each decision's frames alive.

    return lambda items: {item: decide_one(item) for item in items}


class Transitions:
    """The writer of metadata changes.

    If another broker changes the same metadata before a change is written, the change is decided again.
    """

    def __init__(self, store: MetadataStore, image: MetadataImage) -> None:
        self._store = store
        self._image = image
        self._turns = asyncio.Lock()
        self.rounds = 0
        """The number of attempts of this broker so far to decide on metadata changes and to write them."""

    async def decided(self, items: Sequence[Item], decide: Decide[Item]) -> dict[Item, Planned | ApiError]:
        """Return what `carry_out` would decide for each item, such as a topic, without writing any change."""
        outcomes: dict[Item, Planned | ApiError] = {}
        for some in slices(items, lambda _: 1, WRITTEN_ITEMS, WRITTEN_ITEMS):
            outcomes |= decide(some)
            await self._next_turn()
        return outcomes

    async def carry_out(
        self, items: Sequence[Item], decide: Decide[Item], size: Callable[[Item], int] = lambda _: 1
    ) -> dict[Item, Planned | ApiError]:
        """Decide and write the changes of items, such as topics; return the written change or the error of each item.

        Items that do not change are left out. The image holds the changes when the call returns. The items fail
        independently. `size` returns how many partitions an item has. If the store does not answer, the error is
        REQUEST_TIMED_OUT, because a write may have happened.
        """
        outcomes: dict[Item, Planned | ApiError] = {}
        try:
            for number, some in enumerate(slices(items, size, WRITTEN_ITEMS, WRITTEN_PARTITIONS)):
                if number:
                    # Without a write nothing is awaited, so many items without a write would block other tasks.
                    await self._next_turn()
                await self._carry_out_some(some, decide, outcomes)
        except StoreUnavailable as error:
            log.warning("the metadata could not be changed: %s", error)
            failure = ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the metadata store does not answer: {error}")
            outcomes |= {item: failure for item in items if item not in outcomes}
        return outcomes

    async def _next_turn(self) -> None:
        """Wait for a turn of the event loop in which no other call decides, however many are under way."""
        async with self._turns:
            await next_turn()

    async def _carry_out_some(
        self, items: Sequence[Item], decide: Decide[Item], outcomes: dict[Item, Planned | ApiError]
    ) -> None:
        left = items
        for _ in range(ATTEMPTS_MAX):
            self.rounds += 1
            decisions = decide(left)
            outcomes |= {item: decision for item, decision in decisions.items() if isinstance(decision, ApiError)}
            planned = {item: decision for item, decision in decisions.items() if isinstance(decision, Planned)}
            left = await self._write(planned, outcomes)
            if not left:
                return
        failure = ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"other brokers changed the same keys of the metadata store during {ATTEMPTS_MAX} attempts; try again",
        )
        outcomes |= dict.fromkeys(left, failure)

    async def _write(self, planned: Mapping[Item, Planned], outcomes: dict[Item, Planned | ApiError]) -> Sequence[Item]:
        """Write the changes in `planned`, and add the written changes to `outcomes`.

        Return the items that were not written because another broker changed the same metadata first. When the call
        returns, the image has the other broker's change.
        """
        if not planned:
            return ()
        plans = {item: writes_of(*decision, self._image) for item, decision in planned.items()}
        results = await write_in_order(plans.values(), self._store)
        await self._image.reached(max((each for each in results.values() if isinstance(each, int)), default=0))
        conflicts = [each for each in results.values() if isinstance(each, VersionConflict)]
        in_conflict = {each.key for each in conflicts}
        left = [item for item, plan in plans.items() if not in_conflict.isdisjoint(plan.keys())]
        for item in [item for item in planned if item not in set(left)]:
            outcomes[item] = planned[item]
            self._image.wrote(planned[item].document)
        if conflicts:
            await self._catch_up(conflicts)
        return left

    async def _catch_up(self, conflicts: Sequence[VersionConflict]) -> None:
        """Wait until the image has the stored versions with which the writes were in conflict.

        If somebody deleted a value in the store's file by hand, the watch reports no deletion, so the value is removed
        from the image here.
        """
        await self._image.reached(max(conflict.actual for conflict in conflicts))
        absent = [each for each in conflicts if each.actual == ABSENT]
        if absent:
            await self._image.reached(await self._store.latest_revision())
        for conflict in absent:
            if self._image.version(conflict.key) == conflict.expected != ABSENT:
                self._image.vanished(conflict.key)


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

PARTS_SEARCH_MS: Final = 60_000
"""The interval in ms between searches for unused topic parts: stored partitions to which no topic document refers.

An unused topic part is deleted after KEPT_MS, and not at once, because a broker may be about to write the topic
document that refers to the topic part. If the topic has neither a topic document nor a tombstone, the topic document
was lost, and a broker that is fenced may still have it in memory. The topic part is then deleted only after all brokers
have been alive at the same time for KEPT_MS.
"""


def tombstone_of(topic: TopicDocument, now_ms: int) -> TombstoneDocument:
    """Return the tombstone of a deleted topic."""
    return TombstoneDocument(topic.name, topic.topic_id, now_ms, len(topic.partitions))


async def delete_documents(
    topics: Mapping[str, TopicDocument], transitions: Transitions, image: MetadataImage
) -> dict[str, Planned | ApiError]:
    """Delete the metadata of the topics in `topics` that have a tombstone; keep new topics of the same names."""

    def decide(names: Sequence[str]) -> dict[str, Planned | ApiError]:
        found = {name: image.deleting.get(name) for name in names}
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
        if image.deleting:
            await self._finish()
        if image.tombstones:
            await self._forget(now_ms)
        if image.parts and self._parts_seen_at_ms + PARTS_SEARCH_MS <= now_ms:
            self._parts_seen_at_ms = now_ms
            await self._remove_unnamed_parts(now_ms)

    async def _finish(self) -> None:
        image, now_ms = self._image, self._clock.now_ms()
        left = {
            name: topic
            for name, topic in image.deleting.items()
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
        return chain(image.topics.values(), image.deleting.values(), image.incomplete.values())

    def _all_alive_for_long(self, now_ms: int) -> bool:
        return self._all_alive_since_ms is not None and self._all_alive_since_ms + KEPT_MS <= now_ms

    def _old(self, now_ms: int) -> list[TombstoneDocument]:
        kept, left = self._image.tombstones.values(), {each.topic_id for each in self._image.deleting.values()}
        ended = [each for each in kept if each.topic_id not in left]
        if self._all_alive_for_long(now_ms):
            end_ms = self._clock.now_ms() - KEPT_MS
            return [each for each in ended if each.deleted_at_ms <= end_ms]
        if len(kept) <= KEPT_MAX:
            return []
        return sorted(ended, key=lambda each: each.deleted_at_ms)[: len(kept) - KEPT_MAX]


OTHERS_FIRST_S: Final = 1.0
RETRY_S: Final = 1.0
NAMED_MAX: Final = 5


class Restorations:
    """The task, on every broker, of rewriting metadata documents that the metadata store has lost."""

    def __init__(
        self,
        image: MetadataImage,
        transitions: Transitions,
        is_controller: Callable[[], bool],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._image = image
        self._transitions = transitions
        self._is_controller = is_controller
        self._sleep = sleep
        self._woken = asyncio.Event()
        self._steps = Steps()
        self.progress = self._steps.progress

    async def run(self) -> None:
        """Rewrite metadata documents that the metadata store has lost, until the task is cancelled."""
        self._image.subscribe(self._image_changed)
        while True:
            if not self._image.lost:
                await self._woken.wait()
            self._woken.clear()
            await self._steps.count(self._go_round())

    async def _go_round(self) -> None:
        if self._image.lost and not self._is_controller():
            await self._sleep(OTHERS_FIRST_S)
        await self._rewrite_lost()
        if self._image.lost:
            await self._sleep(RETRY_S)

    def _image_changed(self, change: ImageChange) -> None:
        if change.lost:
            self._woken.set()

    async def _rewrite_lost(self) -> None:
        image = self._image

        def decide(keys: Sequence[str]) -> dict[str, Planned | ApiError]:
            return {key: Planned(key, image.lost[key]) for key in keys if key in image.lost}

        outcomes = await self._transitions.carry_out(list(image.lost), decide)
        written = [key for key, outcome in outcomes.items() if isinstance(outcome, Planned)]
        self._image.restored_total += len(written)
        if written:
            named = ", ".join(written[:NAMED_MAX]) + (" and others" if len(written) > NAMED_MAX else "")
            log.error(
                "%d documents of the metadata store were missing or out of date, and were written again: %s",
                len(written),
                named,
            )
