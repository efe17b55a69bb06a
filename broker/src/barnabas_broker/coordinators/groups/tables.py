"""The groups and offsets that the records of one partition of `__consumer_offsets` define.

Only records change the durable state. `apply` is the same for a record that was just committed and for one that is read
again after a restart. The groups' soft state (joins, deadlines) is in `groups` beside it and is changed by the
phases.
"""

from collections.abc import Iterator
from itertools import islice

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import Now
from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupKey, GroupMetadata, GroupRecord
from barnabas_broker.coordinators.groups.stored_group import restore
from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_core.topic_partition import TopicPartition

_RESTORED_AT_ONCE = 20
"""The groups of one slice, of about a millisecond."""

_new = tuple.__new__
"""The constructor of a NamedTuple in half the time."""


class GroupTables:
    """The groups of one partition."""

    __slots__ = ("groups", "offsets", "stored")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.stored: dict[str, GroupMetadata] = {}
        """The durable state by group id; absent for groups that only commit offsets."""

    def apply(self, record: GroupRecord) -> None:
        """Apply a record, committed now or read again."""
        key, value = record
        if isinstance(key, GroupKey):
            assert not isinstance(value, CommittedOffset)
            self._apply_group(key.group_id, value)
            return
        group_id, topic, partition = key
        topic_partition = _new(TopicPartition, (topic, partition))
        if value is not None:
            assert not isinstance(value, GroupMetadata)
            offsets = self.offsets.get(group_id)
            if offsets is None:
                self.group(group_id)
                offsets = self.offsets[group_id] = {}
            offsets[topic_partition] = value
        elif group_id in self.offsets:
            self.offsets[group_id].pop(topic_partition, None)
            if not self.offsets[group_id]:
                del self.offsets[group_id]

    def _apply_group(self, group_id: str, value: GroupMetadata | None) -> None:
        if value is not None:
            self.stored[group_id] = value
            self.group(group_id)
            return
        self.stored.pop(group_id, None)
        self.groups.pop(group_id, None)
        if group_id in self.offsets:
            self.group(group_id)

    def group(self, group_id: str) -> Group:
        """Return the group, created if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def restore_groups(self, now: Now, left_out: LeftOut) -> Iterator[None]:
        """Restore members and sessions after all records are read, in slices; a group that fails keeps its offsets."""
        stored = iter(list(self.stored))
        while some := list(islice(stored, _RESTORED_AT_ONCE)):
            for group_id in some:
                self._restore_group(group_id, now, left_out)
            yield

    def _restore_group(self, group_id: str, now: Now, left_out: LeftOut) -> None:
        try:
            self.groups[group_id] = restore(group_id, self.stored[group_id], now)
        except Exception as error:
            left_out.add(f"group {group_id}", error)
            self._apply_group(group_id, None)

    def is_vacant(self, group: Group) -> bool:
        """Return True if the group is Empty and has no pending member ids, stored state or offsets."""
        used = group.pending_joins or group.group_id in self.stored or group.group_id in self.offsets
        return group.state is GroupState.EMPTY and not used
