"""Which statuses of groups are written now: news at once, numbers in turns, for groups come by the thousand."""

import math
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas_operator.planning.groups.group_status import is_worth_a_write
from barnabas_operator.reconcile.kind_reconciler import Bodies
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupStatus
from barnabas_operator.resources.json_types import Json

NUMBERS_EVERY_S: Final = 60.0
"""A group whose numbers change all the time is written no more often for that."""
NUMBERS_AT_ONCE_MAX: Final = 30
"""Of groups of which nothing but numbers has changed so many are written after a look, those first that have waited
longest: 2 a second, however many groups there are."""


class _Change(NamedTuple):
    group: ConsumerGroup
    body: Json
    is_news: bool


class GroupStatuses:
    """Of one Cluster; `now_s` is a monotonic clock."""

    def __init__(self, statuses: StatusWriter, now_s: Callable[[], float]) -> None:
        self._statuses = statuses
        self._now_s = now_s
        self._written_s: dict[str, float] = {}
        """By uid."""

    async def write(self, groups: Iterable[tuple[ConsumerGroup, ConsumerGroupStatus | None]], bodies: Bodies) -> None:
        """`groups` have their new status; beside each is the one that it had when it was read."""
        changes = [change for group, before in groups if (change := self._change(group, before, bodies)) is not None]
        numbers = sorted((each for each in changes if not each.is_news), key=lambda each: self._at(each.body))
        written = [*(each for each in changes if each.is_news), *numbers[:NUMBERS_AT_ONCE_MAX]]
        there = {body["metadata"]["uid"] for body in bodies.values()}
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in there}
        self._written_s |= dict.fromkeys((each.body["metadata"]["uid"] for each in written), self._now_s())
        await self._statuses.write((each.group, each.body) for each in written)

    def _change(self, group: ConsumerGroup, before: ConsumerGroupStatus | None, bodies: Bodies) -> _Change | None:
        """None where there is nothing to write, or not yet."""
        body = bodies[group.metadata.name]
        assert group.status is not None, "only a group with a new status is written"
        if group.status == before:
            return None
        if is_worth_a_write(before, group.status):
            return _Change(group, body, is_news=True)
        is_due = self._now_s() - self._at(body) >= NUMBERS_EVERY_S
        return _Change(group, body, is_news=False) if is_due else None

    def _at(self, body: Json) -> float:
        return self._written_s.get(body["metadata"]["uid"], -math.inf)
