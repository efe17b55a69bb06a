"""Which topics the members of groups read, also while they rebalance or are restarted. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_lag.evaluation.readings import GroupReading

KEPT_S: Final = 300.0
"""For so long a group reads what it read before; then nobody knows, and all that it has committed to counts."""


class TopicsRead(NamedTuple):
    """The topics that a group's members read, and when all of them said so last."""

    topics: frozenset[str]
    at_s: float


def with_look(
    before: Mapping[str, TopicsRead], groups: Mapping[str, GroupReading], now_s: float
) -> dict[str, TopicsRead]:
    """What is known of each group after this look."""
    kept = {group_id: read for group_id, read in before.items() if now_s - read.at_s < KEPT_S}
    told = {group_id: TopicsRead(each.topics, now_s) for group_id, each in groups.items() if each.topics is not None}
    return {**kept, **told}
