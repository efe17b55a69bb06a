"""What one partition of `__consumer_offsets` says: groups and their offsets. Changed by its records, and by nothing
else.

`apply` is the same for a record that was just committed and for one that is read again after a restart. The groups'
soft state (who is joining, deadlines) is in `groups` beside it and is changed by the phases.
"""

from collections.abc import Iterator
from itertools import islice

from barnabas_broker.coordinators.groups.group import Group, GroupState, restore
from barnabas_broker.coordinators.groups.left_out import LeftOut
from barnabas_broker.coordinators.groups.messages import Now
from barnabas_broker.coordinators.groups.records import CommittedOffset, GroupMetadata, GroupRecord, OffsetKey
from barnabas_core.topic_partition import TopicPartition

_RESTORED_AT_ONCE = 20
"""Groups; about a millisecond."""


class GroupTables:
    """The groups of one partition."""

    __slots__ = ("groups", "offsets", "stored")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.stored: dict[str, GroupMetadata] = {}
        """Durable state by group id; absent for groups that only commit offsets."""

    def apply(self, record: GroupRecord) -> None:
        """A record is committed, or read again."""
        key, value = record
        if isinstance(key, OffsetKey):
            assert not isinstance(value, GroupMetadata)
            self._apply_offset(key, value)
        else:
            assert not isinstance(value, CommittedOffset)
            self._apply_group(key.group_id, value)

    def _apply_offset(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        topic_partition = TopicPartition(key.topic, key.partition)
        if value is not None:
            self.offsets_of(key.group_id)[topic_partition] = value
            return
        of_group = self.offsets.get(key.group_id, {})
        of_group.pop(topic_partition, None)
        if not of_group:
            self.offsets.pop(key.group_id, None)

    def _apply_group(self, group_id: str, value: GroupMetadata | None) -> None:
        if value is not None:
            self.stored[group_id] = value
            self.group(group_id)
            return
        self.stored.pop(group_id, None)
        self.groups.pop(group_id, None)
        if group_id in self.offsets:
            self.group(group_id)

    def offsets_of(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Where the group's offsets are put; the group begins where there was none."""
        self.group(group_id)
        return self.offsets.setdefault(group_id, {})

    def group(self, group_id: str) -> Group:
        """The group, new and empty where there was none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id)
        return group

    def restore_groups(self, now: Now, left_out: LeftOut) -> Iterator[None]:
        """Once all records are read: members and sessions, some groups at a time. Of a group that cannot be restored
        the offsets remain.
        """
        stored = iter(list(self.stored))
        while some := list(islice(stored, _RESTORED_AT_ONCE)):
            for group_id in some:
                self._restore_group(group_id, now, left_out)
            yield

    def _restore_group(self, group_id: str, now: Now, left_out: LeftOut) -> None:
        try:
            self.groups[group_id] = restore(group_id, self.stored[group_id], now)
        except Exception as error:
            left_out.group(group_id, error)
            self._apply_group(group_id, None)

    def is_vacant(self, group: Group) -> bool:
        """Nobody is in the group and nothing is known of it but its name."""
        used = group.pending_joins or group.group_id in self.stored or group.group_id in self.offsets
        return group.state is GroupState.EMPTY and not used
