"""A share group (KIP-932): a modern group whose members share partitions, and the topics where it has share state.

A partition is assigned only after its share state was initialized at the share coordinator. `ShareTopics` says which
partitions are to be initialized, which ones are, and whether the state of a topic is about to be deleted.

| event | initializing | initialized | deleting |
|---|---|---|---|
| a member subscribes to partitions without state that no request initializes | added | | removed |
| the state was initialized | removed | added | |
| the state could not be initialized | removed | | |
| the offsets of a topic are to be deleted | removed | removed | added |
| the state of a topic was deleted, or the topic itself | removed | removed | removed |
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.modern.group import ModernGroup, ModernState
from barnabas_broker.coordinators.modern.records import Kind, ModernRecord, ShareTopics, TopicShare
from barnabas_broker.coordinators.modern.targets import Topics
from barnabas_core.topic_partition import TopicIdPartition

Partitions = Mapping[UUID, Collection[int]]
"""Partitions by topic id."""


class Uninitialized(NamedTuple):
    """The partitions of a topic that must be initialized."""

    topic_id: UUID
    share: TopicShare
    at_start: frozenset[int]
    """The partitions that begin at offset 0, because the topic got them after the group knew the topic.

    `share.auto.offset.reset` decides about all others. It would skip what was written to the new partitions before.
    """


class ShareGroup(ModernGroup):
    """A share group, with the topics where it has share state."""

    group_type: Final = "share"
    """The type of the group, as clients see it."""
    protocol_type: Final = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topics = ShareTopics()
        self._open: dict[UUID, set[int]] = {}
        """The partitions, by topic id, whose initialization the share coordinators have not answered yet.

        None of them is initialized once more: the second request would have a later state epoch, and if it came after
        the answer to the first one, it would delete what members have acknowledged meanwhile. The set is not stored: a
        group that was loaded initializes all partitions again, and its epoch is not below that of earlier requests.
        """
        self._settled: tuple[int, bool] | None = None
        """The version of the topics, and whether initialized partitions are not assigned at that version.

        None if members, targets or state have changed since.
        """
        self._is_complete_at: int | None = None
        """The version of the topics for which all partitions of the members' topics have share state."""
        self.is_being_deleted = False
        """True while the share state of the whole group is deleted, before the group itself is."""

    @property
    def state(self) -> ModernState:
        """The state of the group; members share partitions, so there is nothing to wait for."""
        return ModernState.STABLE if self.members else ModernState.EMPTY

    def kind_of(self, role: Kind) -> Kind:
        """Return the kind of a share group's records with the meaning `role` has in a consumer group."""
        return role.of_share_group

    def apply(self, record: ModernRecord) -> None:
        """Apply a record to the state."""
        self._settled = self._is_complete_at = None
        if record.kind is Kind.SHARE_TOPICS:
            self.topics = record.value if isinstance(record.value, ShareTopics) else ShareTopics()
        else:
            super().apply(record)

    def has_unassigned(self, topics: Topics) -> bool:
        """True if partitions of the members' topics are initialized, but not assigned to any member."""
        if self._settled is None or self._settled[0] != topics.version():
            assigned: dict[UUID, set[int]] = {}
            for member in self.members.values():
                for topic_id, numbers in member.target.items():
                    assigned.setdefault(topic_id, set()).update(numbers)
            found = any(
                not each.partitions <= assigned.get(topic_id, set())
                for topic_id, each in self.topics.initialized.items()
                if each.name in self.topic_names and _is_current(topics, each.name, topic_id)
            )
            self._settled = topics.version(), found
        return self._settled[1]

    @property
    def has_open_initializations(self) -> bool:
        """True if the share coordinators have not answered all initializations."""
        return bool(self._open)

    def begin_initializations(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note that the initialization of partitions is decided, before its record is written."""
        for topic_id, number in partitions:
            self._open.setdefault(topic_id, set()).add(number)

    def end_initializations(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Note that the share coordinators have answered, or that they will not be asked."""
        for topic_id, number in partitions:
            numbers = self._open.get(topic_id, set())
            numbers.discard(number)
            if not numbers:
                self._open.pop(topic_id, None)

    def to_initialize(self, topics: Topics) -> list[Uninitialized]:
        """Return the partitions of the members' topics without share state that are not being initialized."""
        if self._is_complete_at == topics.version() or not self.metadata_hash:  # No topic of the members exists.
            return []
        found, is_complete = list[Uninitialized](), True
        for name in sorted(self.topic_names):
            topic = topics.find(name)
            if topic is None:
                continue
            done = partitions_of(self.topics.initialized, topic.topic_id)
            begun_before = partitions_of(self.topics.initializing, topic.topic_id)
            is_complete &= len(done) >= topic.partition_count
            lacking = frozenset(range(topic.partition_count)) - done - self._open.get(topic.topic_id, set())
            if lacking:
                at_start = lacking if done else lacking - begun_before if begun_before else frozenset()
                found.append(Uninitialized(topic.topic_id, TopicShare(name, lacking), at_start))
        self._is_complete_at = topics.version() if is_complete else None
        return found


def _is_current(topics: Topics, name: str, topic_id: UUID) -> bool:
    topic = topics.find(name)
    return topic is not None and topic.topic_id == topic_id


def partitions_of(topics: Mapping[UUID, TopicShare], topic_id: UUID) -> frozenset[int]:
    """Return the partitions of a topic, none if it is not there."""
    found = topics.get(topic_id)
    return frozenset() if found is None else found.partitions


def begun(topics: ShareTopics, found: Mapping[UUID, TopicShare]) -> ShareTopics:
    """Return the topics when partitions are about to be initialized."""
    return ShareTopics(
        _joined(topics.initializing, found),
        topics.initialized,
        {topic_id: name for topic_id, name in topics.deleting.items() if topic_id not in found},
    )


def finished(topics: ShareTopics, done: Partitions) -> ShareTopics:
    """Return the topics when partitions were initialized; those that are no longer being initialized do not count."""
    still = {
        topic_id: TopicShare(each.name, each.partitions & frozenset(done[topic_id]))
        for topic_id, each in topics.initializing.items()
        if topic_id in done
    }
    return topics._replace(
        initializing=without(topics.initializing, done), initialized=_joined(topics.initialized, still)
    )


def failed(topics: ShareTopics, undone: Partitions) -> ShareTopics:
    """Return the topics when partitions could not be initialized."""
    return topics._replace(initializing=without(topics.initializing, undone))


def deleting(topics: ShareTopics, names: Mapping[UUID, str]) -> ShareTopics:
    """Return the topics when the share state of some is about to be deleted."""
    return ShareTopics(
        _except(topics.initializing, names), _except(topics.initialized, names), {**topics.deleting, **names}
    )


def forgotten(topics: ShareTopics, topic_ids: Collection[UUID]) -> ShareTopics:
    """Return the topics without those whose share state was deleted, or that do not exist any more."""
    kept = {topic_id: name for topic_id, name in topics.deleting.items() if topic_id not in topic_ids}
    return ShareTopics(_except(topics.initializing, topic_ids), _except(topics.initialized, topic_ids), kept)


def size_bytes(topics: ShareTopics) -> int:
    """Return about how many bytes the record of the topics has."""
    shares = (*topics.initializing.values(), *topics.initialized.values())
    names = sum(len(name) for name in (*(each.name for each in shares), *topics.deleting.values()))
    return names + sum(4 * len(each.partitions) for each in shares) + 20 * (len(shares) + len(topics.deleting))


def _joined(topics: Mapping[UUID, TopicShare], more: Mapping[UUID, TopicShare]) -> dict[UUID, TopicShare]:
    joined = dict(topics)
    for topic_id, each in more.items():
        if each.partitions:
            joined[topic_id] = TopicShare(each.name, each.partitions | partitions_of(topics, topic_id))
    return joined


def without(topics: Mapping[UUID, TopicShare], gone: Partitions) -> dict[UUID, TopicShare]:
    """Return the topics without some partitions; a topic without any partition is left out."""
    left = {
        topic_id: TopicShare(each.name, each.partitions - frozenset(gone.get(topic_id, ())))
        for topic_id, each in topics.items()
    }
    return {topic_id: each for topic_id, each in left.items() if each.partitions}


def _except(topics: Mapping[UUID, TopicShare], gone: Iterable[UUID]) -> dict[UUID, TopicShare]:
    names = frozenset(gone)
    return {topic_id: each for topic_id, each in topics.items() if topic_id not in names}
