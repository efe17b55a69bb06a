"""Describes consumer groups and the logs that they read, and changes the committed offsets of groups.

All calls block and may raise ClusterUnreachable.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import nullcontext
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from kafka.errors import for_code
from kafka.protocol.admin import DeleteGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from barnabas_core.clock import Clock
from barnabas_core.errors import ErrorCode
from barnabas_core.group_lag import by_topic, partitions_read
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition
from barnabas_kafka.asking import (
    EARLIEST,
    LATEST,
    MANY_GROUPS_VERSION,
    NO_OFFSET,
    NOBODY,
    SHARE_VERSION,
    Asking,
    ConsumerGroupDescribeRequest,
    ShareGroupDescribeRequest,
    alter_share_offsets,
    by_broker,
    delete_share_offsets,
    describe_consumer_groups,
    describe_groups,
    describe_share_groups,
    describe_share_offsets,
    fetch_offsets,
    known_lag,
    log_offsets,
)
from barnabas_kafka.connection import REQUEST_TIMEOUT_S, ClusterUnreachable, connected_client
from barnabas_kafka.security import Credentials
from barnabas_lag.evaluation.history import History
from barnabas_lag.evaluation.lags import GroupLags
from barnabas_lag.kafka.groups import Chosen, evaluate, read_chosen
from barnabas_lag.kafka.offsets import OffsetsRetention
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.planning.conditions import KAFKA_ERROR, Refusal, listed, utc_moment
from barnabas_operator.planning.groups.reset_plan import (
    NOT_FOUND,
    Committed,
    GroupDescription,
    GroupDescriptions,
    GroupSeen,
    LogEnds,
    Member,
    ResetPlan,
    TopicsRead,
    named_topics,
    plan_reset,
    reset_partitions,
    reset_time_ms,
    with_topics_read,
)
from barnabas_operator.planning.groups.reset_step import reset_warnings
from barnabas_operator.resources.consumer_group import ConsumerGroup, Reset

MANY_COORDINATORS_VERSION: Final = 4
"""The version of FindCoordinator that takes several groups (KIP-699)."""
EPOCHS_VERSION: Final = 6
NAMES_VERSION_MAX: Final = 9
"""The last version of OffsetCommit with topic names; later versions have topic ids."""
NO_MEMBER: Final = -1
"""The generation in commits of a client that is no member of the group."""


class Refused(NamedTuple):
    """A refusal of the brokers: Kafka's error code, and the object that it concerns."""

    code: int
    about: str

    @property
    def has_members(self) -> bool:
        """True if the error means that the group has members, so that it accepts no commit from other clients."""
        return self.code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.REBALANCE_IN_PROGRESS,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.STALE_MEMBER_EPOCH,
        )

    def __str__(self) -> str:
        return f"{for_code(self.code).__name__} for {self.about}"


class GroupAdmin:
    """An admin client for groups. Call `describe` before `first_since`, because `describe` finds the leaders.

    A request that changes something runs in the context manager `writing(seconds)`, and may take `seconds`.
    """

    def __init__(self, client: Any, writing: TimedWrite) -> None:
        self._asking = Asking(client)
        self._writing = writing
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[str, int] = {}

    def describe(self, group_ids: Collection[str], topics: Collection[str] = ()) -> GroupDescriptions:
        """Describe the given groups, and read the start and end offsets of partitions.

        The partitions are those of the given topics, and of all topics for which the groups have committed offsets.
        """
        groups = self._groups(group_ids)
        read = {partition.topic for group in groups.values() for partition in group.committed}
        metadata = self._metadata(sorted({*topics, *read}))
        counts = {topic.name: len(topic.partitions) for topic in metadata if topic.error_code == ErrorCode.NONE}
        self._leaders = {
            TopicPartition(topic.name, part.partition_index): part.leader_id
            for topic in metadata
            for part in topic.partitions
        }
        return GroupDescriptions(groups, counts, self._logs())

    def first_since(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int | None]:
        """Return the offset of the first record at or after a time, by partition; None if there is no such record.

        Partitions that `describe` did not find, or whose leader does not answer, are left out.
        """
        answers = log_offsets(self._asking, self._leader, dict.fromkeys(partitions, time_ms))
        return {each: found.offset if found.offset != NO_OFFSET else None for each, found in answers.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, Committed]) -> Refused | None:
        """Commit offsets in one request, without being a member of the group; return the first refusal, or None."""
        of_topic = OffsetCommitRequest.OffsetCommitRequestTopic
        of_partition = of_topic.OffsetCommitRequestPartition
        topics = [
            of_topic(
                name=topic,
                partitions=[
                    of_partition(
                        partition_index=each.partition,
                        committed_offset=offsets[each].offset,
                        committed_leader_epoch=offsets[each].leader_epoch,
                        committed_metadata=offsets[each].metadata,
                    )
                    for each in parts
                ],
            )
            for topic, parts in _by_topic(offsets)
        ]
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=NO_MEMBER,
            member_id="",
            topics=topics,
            min_version=EPOCHS_VERSION,
            max_version=NAMES_VERSION_MAX,
        )
        return _refusal_of(self._ask_coordinator(group_id, request).topics)

    def delete(self, group_id: str) -> Refused | None:
        """Delete a group with its committed offsets; return the refusal, or None.

        A group that does not exist counts as deleted.
        """
        request = DeleteGroupsRequest(groups_names=[group_id])
        (result,) = self._ask_coordinator(group_id, request).results
        fine = (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND)
        return None if result.error_code in fine else Refused(result.error_code, f"group {group_id}")

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> Refused | None:
        """Delete committed offsets of the group; return the first refusal, or None.

        A group or topic that does not exist is no refusal, because its offsets do not exist either.
        """
        of_topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        of_partition = of_topic.OffsetDeleteRequestPartition
        topics = [
            of_topic(name=topic, partitions=[of_partition(partition_index=each.partition) for each in parts])
            for topic, parts in _by_topic(partitions)
        ]
        answer = self._ask_coordinator(group_id, OffsetDeleteRequest(group_id=group_id, topics=topics))
        if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return None
        if answer.error_code != ErrorCode.NONE:
            return Refused(answer.error_code, f"group {group_id}")
        return _refusal_of(answer.topics, fine=(ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def alter_start_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> Refused | None:
        """Set start offsets of a share group without members, which is made if there is none.

        Return the first refusal, or None; after a refusal the offsets of other partitions may be set.
        """
        answer = self._ask_coordinator(group_id, alter_share_offsets(group_id, offsets))
        if answer.error_code != ErrorCode.NONE:
            return Refused(answer.error_code, f"group {group_id}")
        names = ((topic.topic_name, topic.partitions) for topic in answer.responses)
        found = ((each.error_code, f"{name}-{each.partition_index}") for name, parts in names for each in parts)
        return _first_refusal(found)

    def delete_start_offsets(self, group_id: str, topics: Collection[str]) -> Refused | None:
        """Delete start offsets of a share group; return the first refusal, or None.

        A group or topic that does not exist is no refusal, as in `delete_offsets`.
        """
        answer = self._ask_coordinator(group_id, delete_share_offsets(group_id, topics))
        if answer.error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            return Refused(answer.error_code, f"group {group_id}")
        found = ((each.error_code, f"topic {each.topic_name}") for each in answer.responses)
        return _first_refusal(found, fine=(ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def _groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription]:
        found = {
            group_id: GroupDescription(problem="the group's coordinator does not answer") for group_id in group_ids
        }
        found |= {each: GroupDescription(problem=why) for each, why in self._find_coordinators(group_ids)}
        known = [each for each in group_ids if each in self._coordinators]
        described = dict(self._described(known))
        shares = [each for each, group in described.items() if group.share_epoch is not None]
        others = [each for each in known if each not in shares]
        for group_id, committed in (*self._committed(others), *self._start_offsets(shares)):
            if group_id in described:
                found[group_id] = described[group_id]._replace(committed=committed)
        return found

    def _find_coordinators(self, group_ids: Collection[str]) -> Iterator[tuple[str, str]]:
        """Find the coordinators of groups; yield each group that has no coordinator, with the reason."""
        self._coordinators = {}
        for key, found in self._coordinators_of(group_ids):
            if found.error_code == ErrorCode.NONE:
                self._coordinators[key] = found.node_id
            else:
                yield key, f"the group has no coordinator: {for_code(found.error_code).__name__}"
        self._asking.meet(list(set(self._coordinators.values())))

    def _coordinators_of(self, group_ids: Collection[str]) -> Iterator[tuple[str, Any]]:
        keys = list(group_ids)
        if self._asking.supports(FindCoordinatorRequest, MANY_COORDINATORS_VERSION):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=keys, min_version=MANY_COORDINATORS_VERSION)
            yield from ((each.key, each) for each in self._asking.ask_any(request).coordinators)
            return
        for key in keys:
            one = FindCoordinatorRequest(key=key, key_type=0, max_version=MANY_COORDINATORS_VERSION - 1)
            yield key, self._asking.ask_any(one)

    def _described(self, group_ids: Iterable[str]) -> Iterator[tuple[str, GroupDescription]]:
        """Describe the groups.

        DescribeGroups describes a group of another protocol like one that does not exist, so such groups are asked
        for again by ConsumerGroupDescribe and by ShareGroupDescribe, if the cluster has them.
        """
        found = {group.group_id: _described(group) for group in self._ask_groups(group_ids, describe_groups)}
        unknown = [each for each, group in found.items() if group == GroupDescription()]
        if unknown and self._asking.supports(ConsumerGroupDescribeRequest, 0):
            found |= {each.group_id: _described(each) for each in self._ask_groups(unknown, describe_consumer_groups)}
        unknown = [each for each, group in found.items() if group == GroupDescription()]
        if unknown and self._asking.supports(ShareGroupDescribeRequest, SHARE_VERSION):
            for group in self._ask_groups(unknown, describe_share_groups):
                if group.error_code != ErrorCode.UNSUPPORTED_VERSION:  # The feature share.version is off.
                    epoch = group.group_epoch if group.error_code == ErrorCode.NONE else None
                    found[group.group_id] = _described(group)._replace(share_epoch=epoch)
        yield from found.items()

    def _ask_groups(self, group_ids: Iterable[str], describe: Callable[[Iterable[str]], list[Any]]) -> Iterator[Any]:
        requests = by_broker(group_ids, self._coordinators.__getitem__)
        for _, _, answer in self._asking.ask({broker: describe(some) for broker, some in requests.items()}):
            yield from answer.groups

    def _committed(self, group_ids: Iterable[str]) -> Iterator[tuple[str, dict[TopicPartition, Committed]]]:
        many = self._asking.supports(OffsetFetchRequest, MANY_GROUPS_VERSION)
        requests = by_broker(group_ids, self._coordinators.__getitem__)
        asked = {broker: fetch_offsets(some, many=many) for broker, some in requests.items()}
        for _, request, answer in self._asking.ask(asked):
            groups = ((each.group_id, each) for each in answer.groups) if many else ((request.group_id, answer),)
            for group_id, group in groups:
                if group.error_code == ErrorCode.NONE:
                    yield group_id, dict(_offsets(group.topics))

    def _start_offsets(self, group_ids: Collection[str]) -> Iterator[tuple[str, dict[TopicPartition, Committed]]]:
        for group in self._ask_groups(group_ids, describe_share_offsets):
            if group.error_code == ErrorCode.NONE:
                yield (
                    group.group_id,
                    {
                        TopicPartition(topic.topic_name, part.partition_index): Committed(
                            part.start_offset, lag=known_lag(part)
                        )
                        for topic in group.topics
                        for part in topic.partitions
                        if part.error_code == ErrorCode.NONE
                    },
                )

    def _metadata(self, topics: list[str]) -> list[Any]:
        """Return the metadata of these topics. If `topics` is empty, return an empty list without a request."""
        if not topics:
            return []
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        answer = self._asking.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        self._asking.meet([each.node_id for each in answer.brokers])
        return list(answer.topics)

    def _logs(self) -> dict[TopicPartition, LogEnds]:
        starts = log_offsets(self._asking, self._leader, dict.fromkeys(self._leaders, EARLIEST))
        ends = log_offsets(self._asking, self._leader, dict.fromkeys(self._leaders, LATEST))
        return {each: LogEnds(starts[each].offset, ends[each].offset) for each in starts if each in ends}

    def _leader(self, partition: TopicPartition) -> int:
        return self._leaders.get(partition, NOBODY)

    def _ask_coordinator(self, group_id: str, request: Any) -> Any:
        """Return the response of the group's coordinator; find the coordinator first if it is unknown.

        Raises ClusterUnreachable if there is no coordinator. Also raises ClusterUnreachable if the coordinator does not
        answer, although the coordinator may have carried out the request.
        """
        if group_id not in self._coordinators:
            for _, why in self._find_coordinators([group_id]):
                raise ClusterUnreachable(f"group {group_id}: {why}")
        with self._writing(REQUEST_TIMEOUT_S):
            for _, _, answer in self._asking.ask({self._coordinators[group_id]: [request]}):
                return answer
        raise ClusterUnreachable("; ".join(map(str, self._asking.failures)))


def _described(group: Any) -> GroupDescription:
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription()
    if group.error_code != ErrorCode.NONE:
        return GroupDescription(problem=for_code(group.error_code).__name__)
    members = (Member(each.client_id, each.client_host.removeprefix("/")) for each in group.members)
    return GroupDescription(group.group_state, tuple(sorted(members)))


def _offsets(topics: Iterable[Any]) -> Iterator[tuple[TopicPartition, Committed]]:
    for topic in topics:
        for part in topic.partitions:
            if part.error_code == ErrorCode.NONE and part.committed_offset >= 0:
                where = TopicPartition(topic.name, part.partition_index)
                yield where, Committed(part.committed_offset, part.committed_leader_epoch, part.metadata or "")


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterator[tuple[str, list[TopicPartition]]]:
    for topic, parts in groupby(sorted(partitions), lambda each: each.topic):
        yield topic, list(parts)


def _refusal_of(topics: Iterable[Any], fine: Collection[ErrorCode] = (ErrorCode.NONE,)) -> Refused | None:
    names = ((topic.name, topic.partitions) for topic in topics)
    found = ((part.error_code, f"{name}-{part.partition_index}") for name, parts in names for part in parts)
    return _first_refusal(found, fine)


def _first_refusal(found: Iterable[tuple[int, str]], fine: Collection[ErrorCode] = (ErrorCode.NONE,)) -> Refused | None:
    return next((Refused(code, about) for code, about in found if code not in fine), None)


CONNECT_S: Final = 1.0
UNKNOWN: Final = (
    "the effect of the reset is unknown, because the brokers do not answer; the status will show the effect"
)


def plan_now(admin: GroupAdmin, reset: Reset, group_id: str, now: datetime) -> ResetPlan | Refusal:
    """Return the plan of a reset, or why the reset is refused. Raises ClusterUnreachable if no broker answers."""
    return plan_of(admin, reset, group_id, reset_descriptions(admin, reset, group_id), now)


def plan_of(
    admin: GroupAdmin, reset: Reset, group_id: str, described: GroupDescriptions, now: datetime
) -> ResetPlan | Refusal:
    """Return the plan of a reset, or a Refusal if the group, the time or the partitions prevent the reset.

    `described` has the state of the group and its logs. Only a reset to a time needs further requests to brokers.
    Raises ClusterUnreachable if no broker answers.
    """
    for each, group in described.groups.items():
        if group.problem:
            return Refusal(KAFKA_ERROR, f"group {each}: {group.problem}")
    time_ms = reset_time_ms(reset.to, now)
    if isinstance(time_ms, Refusal):
        return time_ms
    partitions = reset_partitions(reset, group_id, described)
    if isinstance(partitions, Refusal):
        return partitions
    found = admin.first_since(partitions, time_ms) if time_ms is not None else {}
    return plan_reset(reset, group_id, described, found)


def reset_descriptions(admin: GroupAdmin, reset: Reset, group_id: str) -> GroupDescriptions:
    """Describe the group, the group whose offsets the reset copies, and the topics that the reset names."""
    others = [reset.to.group] if reset.to.group is not None else []
    return admin.describe(list(dict.fromkeys([group_id, *others])), named_topics(reset))


def preview(bootstrap: str, security: Credentials, group: ConsumerGroup, clock: Clock) -> tuple[str, ...]:
    """Return warnings about the effect of the reset, over a connection of its own.

    The call blocks until the brokers answer or a timeout.
    """
    reset = group.spec.offsets.reset
    if reset is None:
        return ()
    try:
        client = connected_client(bootstrap, CONNECT_S, "barnabas-operator-preview", security)
    except ClusterUnreachable:
        return (UNKNOWN,)
    try:
        admin = GroupAdmin(client, nullcontext)
        described = admin.describe([group.group_id]).groups[group.group_id]
        plan = plan_now(admin, reset, group.group_id, utc_moment(clock.now_ms()))
    except ClusterUnreachable:
        return (UNKNOWN,)
    finally:
        client.close()
    return tuple(reset_warnings(reset, group.group_id, described, plan))


NOTHING: Final = GroupLags(None, {}, {})


class ObservedGroups(NamedTuple):
    """The observed groups. Groups that no broker reported are left out, and `unheard` has the reasons."""

    groups: Mapping[str, GroupSeen]
    unheard: str


class GroupReader:
    """The reader of one cluster's consumer groups. `read` is called in threads, but never twice at the same time."""

    def __init__(self, patience_s: float, clock: Clock) -> None:
        """Create the reader. A group counts as stalled only after `patience_s` seconds or more without progress."""
        self._history: Final = History(patience_s)
        self._clock: Final = clock
        self._retention: Final = OffsetsRetention(clock.monotonic_s)
        self._topics: dict[str, Collection[str]] = {}
        """The topics of each group that was read before, until all brokers answer and none lists the group."""
        self._read: Mapping[str, TopicsRead] = {}
        self._there: Set[str] = frozenset()
        """The groups that the brokers reported in the previous call of `read`."""

    def read(self, connected: Callable[[], Any], group_ids: Collection[str]) -> ObservedGroups:
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
        self._read = with_topics_read(self._read, chosen.readings.groups, self._clock.monotonic_s())
        topics = by_topic(chosen.readings.partitions)
        found = {
            group_id: seen_of(group_id, chosen, lags[group_id], topics, self._read.get(group_id))
            for group_id in chosen.readings.groups
        }
        missed, self._there = absent & self._there, frozenset(found)
        found |= dict.fromkeys(absent - missed, GroupSeen(state=NOT_FOUND, members=0, lags=NOTHING))
        return ObservedGroups(
            found, "; ".join(dict.fromkeys((*map(str, asking.failures), *_away(chosen), *_missed(missed))))
        )


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
