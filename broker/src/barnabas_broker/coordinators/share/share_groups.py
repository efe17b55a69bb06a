"""The share groups of one partition of `__consumer_offsets`, and the share state that the persister has for them.

A change of what has share state is first written as a record of the group. The share coordinators are asked once that
is committed, and their answer is written as another record. So whatever a share coordinator stores is known here.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.consumer_heartbeat import JOIN_EPOCH, BeatReply
from barnabas_broker.coordinators.modern.group import GroupChange, tombstones
from barnabas_broker.coordinators.modern.records import Kind, ShareTopics, TargetEpoch, TopicShare
from barnabas_broker.coordinators.modern.shard import GroupRules, ModernGroups
from barnabas_broker.coordinators.modern.targets import Topics
from barnabas_broker.coordinators.runtime.turns import Pace, Turns
from barnabas_broker.coordinators.runtime.writer import PartitionWriter
from barnabas_broker.coordinators.share.share_heartbeat import (
    Partitions,
    ShareBeat,
    ShareGroup,
    ShareReply,
    ShareWorld,
    begun,
    deleting,
    failed,
    finished,
    forgotten,
    heartbeat,
    plan,
)
from barnabas_broker.coordinators.share_state.persister import Outcomes, SharePersister
from barnabas_broker.coordinators.share_state.share_state import InitializeEntry
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.group_configs import ShareGroupConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicIdPartition, TopicPartition

_logger = logging.getLogger(__name__)

PartitionErrors = Mapping[TopicPartition, ErrorCode]
"""The errors of the partitions that a request could not change."""


class ShareEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of share groups."""

    settings: Callable[[str], ShareGroupConfig]
    """Return the settings of a share group."""
    is_on: Callable[[], bool]
    """Return True if the cluster has share groups."""
    persister: SharePersister


class ShareGroups:
    """The share groups of one partition; each loading of the partition makes a new collection."""

    def __init__(
        self,
        environment: ShareEnvironment,
        topics: Topics,
        clock: Clock,
        timers: Timers,
        turns: Turns,
        writer: PartitionWriter[Any],
    ) -> None:
        rules = GroupRules(ShareGroup, environment.settings, plan)
        self.groups = ModernGroups(rules, topics, clock, timers, turns, writer, lambda _: None)
        self._persister = environment.persister
        self._topics = topics
        self._writer = writer

    def find(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ApiError(GROUP_ID_NOT_FOUND)."""
        group = self.groups.by_id.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def beat(self, request: ShareBeat, answer: Callable[[BeatReply], object]) -> None:
        """Handle a ShareGroupHeartbeat, whose first one makes the group. Raises ApiError."""
        group_id = request.group_id
        group = self.groups.by_id.get(group_id)
        if group is None:
            if request.epoch != JOIN_EPOCH:
                raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            group = ShareGroup(group_id)
        _check_lives(group)

        def written(error: ErrorCode, reply: ShareReply) -> None:
            answer(BeatReply(error, member_id=request.member_id) if error else reply.beat)
            if error:
                group.end_initializations(each.partition for each in reply.to_initialize)
            elif reply.to_initialize:
                self._initialize(group, reply.to_initialize)

        self.groups.run(group, lambda change, world: heartbeat(change, group, request, world), written)

    def _initialize(self, group: ShareGroup, entries: Sequence[InitializeEntry]) -> None:
        self._persister.initialize(group.group_id, entries, lambda outcomes: self._initialized(group, outcomes))

    def _initialized(self, group: ShareGroup, outcomes: Outcomes) -> None:
        """Write which topics are initialized; a topic with a partition that failed is initialized once more."""
        group.end_initializations(outcomes)
        if not self._is_here(group):
            return
        wrong = {each.topic_id: outcome for each, outcome in outcomes.items() if outcome.error}
        done = _by_topic(each for each in outcomes if each.topic_id not in wrong)
        undone = _by_topic(each for each in outcomes if each.topic_id in wrong)
        for outcome in list(wrong.values())[:1]:
            _logger.warning(
                "group %s: the share state of %d topics could not be initialized: %s (%s)",
                group.group_id,
                len(wrong),
                outcome.error.name,
                outcome.message,
            )
        self._write_topics(group, failed(finished(group.topics, done), undone))

    def _write_topics(
        self, group: ShareGroup, topics: ShareTopics, answer: Callable[[ErrorCode], object] = lambda _: None
    ) -> None:
        if topics == group.topics:
            answer(ErrorCode.NONE)
            return
        self.groups.run(
            group,
            lambda change, _: change.write(Kind.OLD_TOPICS, "", topics),
            lambda error, _: answer(error),
        )

    def delete(self, group_id: str, answer: Callable[[ErrorCode], object]) -> None:
        """Delete a group without members: first its share state, then the group itself."""
        group = self.groups.by_id[group_id]
        try:
            _check_idle(group)
        except ApiError as error:
            answer(error.code)
            return
        group.is_being_deleted = True
        names = {
            topic_id: each.name
            for topic_id, each in (*group.topics.initialized.items(), *group.topics.initializing.items())
        }
        partitions = self._stored(group, {**names, **group.topics.deleting})

        def finish(error: ErrorCode) -> None:
            group.is_being_deleted = False
            if not error and self._is_here(group):
                del self.groups.by_id[group_id]
                self._writer.submit(group_id, tuple(tombstones(group)), answer, is_applied=True)
            else:
                answer(error or ErrorCode.NOT_COORDINATOR)

        def written(error: ErrorCode) -> None:
            if error or not partitions:
                finish(error)
            else:
                self._persister.delete(group_id, partitions, lambda outcomes: finish(_first_error(outcomes)))

        self._write_topics(group, deleting(group.topics, names), written)

    def _stored(self, group: ShareGroup, topics: Mapping[UUID, str]) -> list[TopicIdPartition]:
        """Return the partitions of topics that may have share state."""
        found = []
        for topic_id, name in topics.items():
            numbers = {
                *_numbers(group.topics.initialized.get(topic_id)),
                *_numbers(group.topics.initializing.get(topic_id)),
            }
            topic = self._topics.find(name)
            if topic_id in group.topics.deleting and topic is not None and topic.topic_id == topic_id:
                numbers.update(range(topic.partition_count))
            found += [TopicIdPartition(topic_id, number) for number in sorted(numbers)]
        return found

    def delete_offsets(
        self, group_id: str, names: Collection[str], answer: Callable[[ErrorCode, Mapping[str, ErrorCode]], object]
    ) -> None:
        """Delete the share state of topics, by name; `answer` gets an error for the group, and one for each topic.

        Raises ApiError if there is no such group, or it has members.
        """
        group = self.find(group_id)
        _check_idle(group)
        errors = dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topics = {}
        for name in names:
            topic = self._topics.find(name)
            if topic is not None and (
                topic.topic_id in group.topics.initialized or topic.topic_id in group.topics.deleting
            ):
                topics[topic.topic_id] = name
        partitions = self._stored(group, topics)

        def deleted(outcomes: Outcomes) -> None:
            wrong = {each.topic_id: outcome.error for each, outcome in outcomes.items() if outcome.error}
            errors.update({name: wrong.get(topic_id, ErrorCode.NONE) for topic_id, name in topics.items()})
            if not self._is_here(group):
                answer(ErrorCode.NOT_COORDINATOR, {})
                return
            gone = topics.keys() - wrong.keys()
            self._write_topics(group, forgotten(group.topics, gone), lambda error: answer(error, errors))

        def written(error: ErrorCode) -> None:
            if error or not partitions:
                answer(error, errors)
            else:
                self._persister.delete(group_id, partitions, deleted)

        self._write_topics(group, deleting(group.topics, topics), written)

    def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        answer: Callable[[ErrorCode, PartitionErrors], object],
    ) -> None:
        """Set start offsets of a group without members, which is made if there is none. Raises ApiError."""
        group = self.groups.by_id.get(group_id) or ShareGroup(group_id)
        _check_idle(group)
        names, refused = self._alterable(offsets)
        if not names:
            answer(ErrorCode.NONE, refused)
            return

        def initialized(outcomes: Outcomes) -> None:
            group.end_initializations(outcomes)
            refused.update({names[each]: outcome.error for each, outcome in outcomes.items() if outcome.error})
            if self._is_here(group):
                done = _by_topic(each for each, outcome in outcomes.items() if not outcome.error)
                undone = _by_topic(each for each, outcome in outcomes.items() if outcome.error)
                topics = failed(finished(group.topics, done), undone)
                self._write_topics(group, topics, lambda error: answer(error, refused))
            else:
                answer(ErrorCode.NOT_COORDINATOR, refused)

        def written(error: ErrorCode, entries: Sequence[InitializeEntry]) -> None:
            if error:
                group.end_initializations(names)
                answer(error, refused)
            else:
                self._persister.initialize(group_id, entries, initialized)

        def decide(change: GroupChange, world: ShareWorld) -> list[InitializeEntry]:
            _begin_alteration(change, group, names, world)
            group.begin_initializations(names)
            return [InitializeEntry(each, group.epoch, offsets[name]) for each, name in names.items()]

        self.groups.run(group, decide, written)

    def _alterable(
        self, offsets: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicIdPartition, TopicPartition], dict[TopicPartition, ErrorCode]]:
        """Return the partitions that exist and get a valid offset, and the errors of all others."""
        names = dict[TopicIdPartition, TopicPartition]()
        refused = dict[TopicPartition, ErrorCode]()
        for partition, offset in offsets.items():
            topic = self._topics.find(partition.topic)
            if topic is None or not 0 <= partition.partition < topic.partition_count:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif offset < 0:
                refused[partition] = ErrorCode.INVALID_REQUEST
            else:
                names[TopicIdPartition(topic.topic_id, partition.partition)] = partition
        return names, refused

    def forget_topics(self, topic_ids: Collection[UUID]) -> Iterator[None]:
        """Forget deleted topics, whose share state the share coordinators delete by themselves."""
        pace = Pace()
        for group in list(self.groups.by_id.values()):
            if self._is_here(group):
                self._write_topics(group, forgotten(group.topics, topic_ids))
            if pace.spent(1 + len(group.topics.initialized)):
                yield

    def _is_here(self, group: ShareGroup) -> bool:
        return not self._writer.is_closed and self.groups.by_id.get(group.group_id) is group


def _check_lives(group: ShareGroup) -> None:
    if group.is_being_deleted:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group {group.group_id} is being deleted")


def _check_idle(group: ShareGroup) -> None:
    """Check that share state may be changed by hand: no member reads it, and no initialization is under way."""
    _check_lives(group)
    if group.members:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
    if group.has_open_initializations:
        message = f"partitions of the group {group.group_id} are being initialized; try again later"
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)


def _begin_alteration(
    change: GroupChange, group: ShareGroup, names: Mapping[TopicIdPartition, TopicPartition], world: ShareWorld
) -> None:
    """Begin a new epoch, which is that of the new state: leaders with the state so far are fenced by it."""
    change.bump(group.metadata_hash)
    change.write(Kind.TARGET_EPOCH, "", TargetEpoch(group.epoch, world.now.wall_ms))
    shares = {
        topic_id: TopicShare(names[TopicIdPartition(topic_id, min(numbers))].topic, frozenset(numbers))
        for topic_id, numbers in _by_topic(names).items()
    }
    change.write(Kind.OLD_TOPICS, "", begun(group.topics, shares))


def _by_topic(partitions: Iterable[TopicIdPartition]) -> Partitions:
    found: dict[UUID, set[int]] = {}
    for topic_id, number in partitions:
        found.setdefault(topic_id, set()).add(number)
    return found


def _numbers(share: TopicShare | None) -> frozenset[int]:
    return frozenset() if share is None else share.partitions


def _first_error(outcomes: Outcomes) -> ErrorCode:
    return next((each.error for each in outcomes.values() if each.error), ErrorCode.NONE)
