"""Chooses the ConsumerGroup statuses to write: changed conditions at once, changed numbers at a limited rate."""

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas_operator.planning.groups.group_status import is_worth_a_write
from barnabas_operator.reconcile.kind_reconciler import Bodies
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupStatus
from barnabas_operator.resources.json_types import Json

NUMBERS_EVERY_S: Final = 60.0
"""The shortest time between two writes of a status in which only numbers have changed."""
NUMBERS_AT_ONCE_MAX: Final = 30
"""The maximum number of statuses to write at a time if only their numbers, such as the lag, have changed.

The statuses that were written longest ago are chosen first.
"""


class _Change(NamedTuple):
    group: ConsumerGroup
    body: Json
    is_news: bool


class GroupStatuses:
    """The rate limit for writing the statuses of one Cluster's groups. `now_s` returns the monotonic time."""

    def __init__(self, statuses: StatusWriter, now_s: Callable[[], float]) -> None:
        self._statuses = statuses
        self._now_s = now_s
        self._written_s: dict[str, float] = {}
        """The monotonic time of the last write, by uid."""

    async def write(self, groups: Iterable[tuple[ConsumerGroup, ConsumerGroupStatus | None]], bodies: Bodies) -> None:
        """Write changed statuses. If only numbers changed, NUMBERS_EVERY_S and NUMBERS_AT_ONCE_MAX limit the writes.

        `groups` pairs each group with its previous status.
        """
        changes = [change for group, before in groups if (change := self._change(group, before, bodies)) is not None]
        numbers = sorted((each for each in changes if not each.is_news), key=lambda each: self._at(each.body))
        written = [*(each for each in changes if each.is_news), *numbers[:NUMBERS_AT_ONCE_MAX]]
        there = {body["metadata"]["uid"] for body in bodies.values()}
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in there}
        self._written_s |= dict.fromkeys((each.body["metadata"]["uid"] for each in written), self._now_s())
        await self._statuses.write((each.group, each.body) for each in written)

    def _change(self, group: ConsumerGroup, before: ConsumerGroupStatus | None, bodies: Bodies) -> _Change | None:
        body = bodies[group.metadata.name]
        assert group.status is not None, "the status of a group must be set before the status is written"
        if group.status == before:
            return None
        if is_worth_a_write(before, group.status):
            return _Change(group, body, is_news=True)
        is_due = self._now_s() - self._at(body) >= NUMBERS_EVERY_S
        return _Change(group, body, is_news=False) if is_due else None

    def _at(self, body: Json) -> float:
        return self._written_s.get(body["metadata"]["uid"], -math.inf)
