"""The limits on the number of exported series.

Per-partition series are left out first. Topics and groups are exported in the order of their names, but groups without
members last, because there are often thousands of abandoned groups.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_lag.evaluation.lags import Evaluation, GroupLags


class Limits(NamedTuple):
    """The maximum numbers of exported partitions, of exported pairs of group and partition, and of exported groups."""

    topic_partitions: int
    group_partitions: int
    groups: int


class Shown(NamedTuple):
    """The topics and groups that are exported.

    The values of single partitions are left out for groups that are not in `detailed_groups`, and for topics that are
    not in `detailed_topics`.
    """

    detailed_topics: frozenset[str]
    groups: Mapping[str, GroupLags]
    detailed_groups: frozenset[str]
    cut_off: Mapping[str, int]
    """The number of topics or groups that each limit leaves out, by the command-line option of the limit."""


def shown(evaluation: Evaluation, topic_sizes: Mapping[str, int], limits: Limits) -> Shown:
    """Return the topics and groups that the limits allow; `topic_sizes` has the number of partitions of each topic."""
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
    """Return the names that fit, in the order of `sizes`.

    A name is skipped if its size would raise the sum of the sizes above `limit`.
    """
    room, found = limit, set()
    for name in sizes:
        if sizes[name] <= room:
            room -= sizes[name]
            found.add(name)
    return frozenset(found)
