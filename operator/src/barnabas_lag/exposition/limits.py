"""The limits of what is exported.

Detail is cut off first, in an order that seldom changes: by name, with groups without members last, because often
thousands of them are left over.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_lag.evaluation.lags import Evaluation, GroupLags


class Limits(NamedTuple):
    """`topic_partitions` and `group_partitions` bound series by partition, `groups` those that are exported at all."""

    topic_partitions: int
    group_partitions: int
    groups: int


class Shown(NamedTuple):
    """The detail that is exported within the limits.

    Other groups have their sums, other topics their partition counts.
    """

    detailed_topics: frozenset[str]
    groups: Mapping[str, GroupLags]
    detailed_groups: frozenset[str]
    cut_off: Mapping[str, int]
    """The number of names that each limit leaves out, by the option that sets it."""


def shown(evaluation: Evaluation, topic_sizes: Mapping[str, int], limits: Limits) -> Shown:
    """`topic_sizes`: how many partitions each topic has."""
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
    """Return, in this order, each name that still fits under the limit with those before it."""
    room, found = limit, set()
    for name in sizes:
        if sizes[name] <= room:
            room -= sizes[name]
            found.add(name)
    return frozenset(found)
