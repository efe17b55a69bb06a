"""Chooses the statuses to write: those with news at once, and those with other numbers only at a limited rate."""

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, NamedTuple

from barnabas_operator.reconcile.kind_reconciler import Bodies
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.resource import Resource, Status


class Pace(NamedTuple):
    """The rate at which statuses are written in which only numbers, such as the lag, have changed."""

    is_news: Callable[[Any, Any], bool]
    """Return True if a change from the first status to the second must be written at once."""
    every_s: float
    """The shortest time between two writes of a status without news."""
    at_once_max: int | None = None
    """The maximum number of statuses without news in one call of `write`, or None; the oldest are chosen first."""


class PacedStatuses(Generic[ResourceT]):
    """The statuses of one Cluster's resources of one kind. `now_s` returns the monotonic time."""

    def __init__(self, statuses: StatusWriter, now_s: Callable[[], float], pace: Pace) -> None:
        self._statuses: Final = statuses
        self._now_s: Final = now_s
        self._pace: Final = pace
        self._written_s: dict[str, float] = {}
        """The monotonic time of the last write, by uid."""

    def keep(self, bodies: Bodies) -> None:
        """Forget resources that are not in `bodies`."""
        there = {body["metadata"]["uid"] for body in bodies.values()}
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in there}

    async def write(self, changes: Iterable[tuple[ResourceT, Status | None]], bodies: Bodies) -> None:
        """Write changed statuses at the pace of this kind; `changes` pairs each resource with its previous status."""
        news: list[ResourceT] = []
        others: list[ResourceT] = []
        for resource, before in changes:
            assert resource.status is not None, "the status of a resource must be set before the status is written"
            if before is None or self._pace.is_news(before, resource.status):
                news.append(resource)
            elif before != resource.status and self._now_s() - self._at(resource) >= self._pace.every_s:
                others.append(resource)
        written = [*news, *sorted(others, key=self._at)[: self._pace.at_once_max]]
        self._written_s |= dict.fromkeys((each.metadata.uid or "" for each in written), self._now_s())
        await self._statuses.write((each, bodies[each.metadata.name]) for each in written)

    def _at(self, resource: Resource) -> float:
        return self._written_s.get(resource.metadata.uid or "", -math.inf)
