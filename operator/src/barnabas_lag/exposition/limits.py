"""The limits on the number of exported series.

Series of single partitions are left out first. Topics and groups are exported in the order of their names, but groups
without members last, because often thousands of abandoned groups exist.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_lag.evaluation.lags import Evaluation, GroupLags


class Limits(NamedTuple):
    """The maximum numbers of partitions with series, of pairs of group and partition with series, and of groups."""

    topic_partitions: int
    group_partitions: int
    groups: int


class Shown(NamedTuple):
    """The topics and groups that are exported within the limits.

    Without detail, a group has only its series by topic, and a topic only its number of partitions.
    """

    detailed_topics: frozenset[str]
    groups: Mapping[str, GroupLags]
    detailed_groups: frozenset[str]
    cut_off: Mapping[str, int]
    """The number of names that each limit leaves out, by its option."""


def shown(evaluation: Evaluation, topic_sizes: Mapping[str, int], limits: Limits) -> Shown:
    """Return what is exported within the limits; `topic_sizes` has the number of partitions of each topic."""
    names = sorted(evaluation.groups, key=lambda name: (evaluation.groups[name].members == 0, name))
    groups = {name: evaluation.groups[name] for name in names[: limits.groups]}
    topics = fitting(dict(sorted(topic_sizes.items())), limits.topic_partitions)
    detailed = fitting({name: len(each.partitions) for name, each in groups.items()}, limits.group_partitions)
    cut_off = {
        "max-topic-partitions": len(topic_sizes) - len(topics),
        "max-group-partitions": len(groups) - len(detailed),
        "max-groups": len(names) - len(groups),
    }
    return Shown(topics, groups, detailed, cut_off)


def fitting(sizes: Mapping[str, int], limit: int) -> frozenset[str]:
    """Return names whose sizes add up to at most `limit`, in the order of `sizes`, without those that are too large."""
    room, found = limit, set()
    for name in sizes:
        if sizes[name] <= room:
            room -= sizes[name]
            found.add(name)
    return frozenset(found)
