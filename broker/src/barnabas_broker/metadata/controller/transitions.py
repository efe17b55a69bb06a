"""The execution of metadata changes: they are decided from the metadata image and written by compare-and-set."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas_broker.metadata.documents import AnyDocument
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.topic_writes import write_in_order, writes_of
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore, StoreUnavailable, VersionConflict
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.fair_turns import WRITTEN_ITEMS, WRITTEN_PARTITIONS, next_turn, slices

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
