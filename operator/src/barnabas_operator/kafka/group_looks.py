"""Reads the state and the progress of the consumer groups that have a ConsumerGroup."""

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_core.group_lag import by_topic, partitions_read
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import GroupLags
from barnabas_lag.kafka.groups import Chosen, evaluate, read_chosen
from barnabas_lag.kafka.offsets import OffsetsRetention
from barnabas_operator.planning.conditions import listed
from barnabas_operator.planning.groups.observed_group import NOT_FOUND, GroupSeen, TopicsRead, with_look

NOTHING: Final = GroupLags(None, {}, {})


class Looked(NamedTuple):
    """The observed groups. Groups that no broker reported are left out, and `unheard` has the reasons."""

    groups: Mapping[str, GroupSeen]
    unheard: str


class GroupLooks:
    """The reader of one cluster's consumer groups. `look` is called in threads, but never twice at the same time."""

    def __init__(self, patience_s: float, clock: Clock) -> None:
        """Create the reader. A group counts as stalled only after `patience_s` seconds or more without progress."""
        self._history: Final = History(patience_s)
        self._clock: Final = clock
        self._retention: Final = OffsetsRetention(clock.monotonic_s)
        self._topics: dict[str, Collection[str]] = {}
        """The topics of each group that was read before, until all brokers answer and none lists the group."""
        self._read: Mapping[str, TopicsRead] = {}
        self._there: Set[str] = frozenset()
        """The groups that the brokers reported in the previous call of `look`."""

    def look(self, connected: Callable[[], Any], group_ids: Collection[str]) -> Looked:
        """Read the state and progress of these groups, in a few requests to each broker.

        A group that no broker lists is NOT_FOUND. If the previous call still found the group, it is left out instead,
        because its coordinator may be moving. Raises ClusterUnreachable if no broker answers.
        """
        try:
            asking = Asking(connected())
            chosen = read_chosen(asking, group_ids, self._topics, self._retention)
            lags = evaluate(asking, chosen.readings, self._history, self._clock.now_ms() / 1000).groups
        except ClusterUnreachable:
            self._history.unheard()
            raise
        there = chosen.readings.groups.keys()
        absent = set(group_ids) - there - chosen.readings.silent if chosen.readings.is_complete else set()
        kept = {each: topics for each, topics in self._topics.items() if each in set(group_ids) - absent}
        self._topics = {**kept, **{group_id: _topics(chosen, group_id) for group_id in there}}
        self._read = with_look(self._read, chosen.readings.groups, self._clock.monotonic_s())
        topics = by_topic(chosen.readings.partitions)
        found = {
            group_id: seen_of(group_id, chosen, lags[group_id], topics, self._read.get(group_id))
            for group_id in chosen.readings.groups
        }
        missed, self._there = absent & self._there, frozenset(found)
        found |= dict.fromkeys(absent - missed, GroupSeen(state=NOT_FOUND, members=0, lags=NOTHING))
        return Looked(found, "; ".join(dict.fromkeys((*map(str, asking.failures), *_away(chosen), *_missed(missed)))))


def _away(chosen: Chosen) -> Iterator[str]:
    if chosen.away:
        yield f"the partitions of {CONSUMER_OFFSETS} for the groups {listed(sorted(chosen.away))} have no leader"


def _missed(group_ids: Collection[str]) -> Iterator[str]:
    if group_ids:
        yield f"no broker lists the groups {listed(sorted(group_ids))} any more"


def _topics(chosen: Chosen, group_id: str) -> frozenset[str]:
    had = (where.topic for each in chosen.consumers.get(group_id, ()) for where in each.partitions)
    return frozenset(each.topic for each in chosen.readings.groups[group_id].committed).union(had)


def seen_of(
    group_id: str,
    chosen: Chosen,
    lags: GroupLags,
    partitions: Mapping[str, Collection[TopicPartition]],
    read: TopicsRead | None,
) -> GroupSeen:
    """Return the state of one group; `partitions` has the partitions of each topic."""
    reading = chosen.readings.groups[group_id]
    return GroupSeen(
        state=reading.state,
        group_type=reading.group_type,
        shares_partitions=reading.lags is not None,
        members=reading.members,
        consumers=tuple(chosen.consumers.get(group_id, ())),
        lags=lags,
        silent=tuple(
            each
            for each in sorted(partitions_read(reading.committed, lambda topic: partitions.get(topic, ())))
            if each not in lags.partitions
        ),
        partition_counts={topic: len(partitions[topic]) for topic in _topics(chosen, group_id) if topic in partitions},
        held_back=sum(
            min(each.lag, chosen.readings.partitions[where].held_back or 0) for where, each in lags.partitions.items()
        ),
        topics_read=None if read is None else read.topics,
    )
