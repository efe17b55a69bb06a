"""The groups and offsets that the records of one partition of `__consumer_offsets` define.

Only records change the durable state: `apply` is called for each record that is committed, and for the records that are
loaded from the log. State that is not stored, such as the deadlines of a group, is in `groups`.
"""

from collections.abc import Container, Iterator
from itertools import islice

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupKey, GroupMetadata, GroupRecord
from barnabas_broker.coordinators.groups.stored_group import restore
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_core.topic_partition import TopicPartition

_RESTORED_AT_ONCE = 20
"""The number of groups that are restored before other tasks may run: about a millisecond of work."""

_new = tuple.__new__
"""The constructor of `tuple`, which creates a NamedTuple in half the time of the NamedTuple's own constructor."""


class GroupTables:
    """The groups, the committed offsets and the stored group metadata of one partition."""

    __slots__ = ("_modern", "groups", "offsets", "stored")

    def __init__(self, modern: Container[str] = ()) -> None:
        """Create empty tables; `modern` has the ids of modern groups, which have offsets here and nothing else."""
        self._modern = modern
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.stored: dict[str, GroupMetadata] = {}
        """The stored metadata by group id; a group that only commits offsets has no stored metadata."""

    def apply(self, record: GroupRecord) -> None:
        """Apply a record, which was just committed or read from the log, to the groups and offsets."""
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
                if group_id not in self._modern:
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
        if group_id in self.offsets and group_id not in self._modern:
            self.group(group_id)

    def group(self, group_id: str) -> Group:
        """Return the group with this id; create the group if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def restore_groups(self, now: Now, left_out: LeftOut) -> Iterator[None]:
        """Restore the members and sessions of all groups, in steps between which other tasks may run.

        A group that cannot be restored is counted in `left_out`, and keeps its offsets.
        """
        for group_id in [each for each in self.groups if each in self._modern]:
            del self.groups[group_id]
            self.stored.pop(group_id, None)
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
