"""The topics that the members of groups read, remembered while a group rebalances or restarts."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_lag.evaluation.readings import GroupReading

KEPT_S: Final = 300.0
"""The time in seconds for which a group is assumed to read the topics that its members have last reported.

Afterwards the group is assumed to read all topics for which it has committed offsets.
"""


class TopicsRead(NamedTuple):
    """The topics that a group's members read, and when they were last reported."""

    topics: frozenset[str]
    at_s: float


def with_look(
    before: Mapping[str, TopicsRead], groups: Mapping[str, GroupReading], now_s: float
) -> dict[str, TopicsRead]:
    """Return the topics that each group reads.

    A group whose topics are missing in `groups` keeps its last reported topics if they are less than `KEPT_S` seconds
    old.
    """
    kept = {group_id: read for group_id, read in before.items() if now_s - read.at_s < KEPT_S}
    found = {group_id: TopicsRead(each.topics, now_s) for group_id, each in groups.items() if each.topics is not None}
    return {**kept, **found}
