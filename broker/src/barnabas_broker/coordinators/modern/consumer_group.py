"""A consumer group of KIP-848: a modern group in which each partition has one owner, and members have member epochs.

The group also decides whose commits and reads of offsets are current (KIP-1251).
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Final
from uuid import UUID

from barnabas_broker.coordinators.modern.group import ModernGroup
from barnabas_broker.coordinators.modern.records import NOTHING, Current, Owned
from barnabas_core.errors import ApiError, ErrorCode

_logger = logging.getLogger(__name__)


class ConsumerGroup(ModernGroup):
    """A consumer group with an index of the owners of all partitions."""

    group_type: Final = "consumer"
    """The type of the group, as clients see it."""
    protocol_type: Final = "consumer"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self._owners: dict[UUID, dict[int, str]] = {}
        """The member that has each partition, or still has to revoke it."""

    def set_current(self, member_id: str, current: Current | None) -> None:
        """Set what a member has now, also in the index of owners."""
        member = self.members.get(member_id)
        had, has = _held(Current() if member is None else member.current), _held(current or Current())
        super().set_current(member_id, current)
        for topic_id, epochs in had.items():
            if topic_id not in has and topic_id in self._owners:
                self._set_owner(member_id, topic_id, epochs.keys(), NOTHING.keys())
        for topic_id, epochs in has.items():
            before = had.get(topic_id, NOTHING)
            if topic_id not in self._owners:
                self._owners[topic_id] = dict.fromkeys(epochs, member_id)
            elif before is not epochs:
                self._set_owner(member_id, topic_id, before.keys(), epochs.keys())

    def _set_owner(self, member_id: str, topic_id: UUID, had: Set[int], has: Set[int]) -> None:
        owners = self._owners[topic_id]
        for number in had - has:
            if owners.get(number) == member_id:
                del owners[number]
        for number in has:
            other_id = owners.setdefault(number, member_id)
            if other_id != member_id:
                owners[number] = self._later_one(other_id, member_id, topic_id, number)
        if not owners:
            del self._owners[topic_id]

    def _later_one(self, other_id: str, member_id: str, topic_id: UUID, number: int) -> str:
        """Return the owner with the later epoch, of two that only a load can find."""
        _logger.warning(
            "group %s: the members %s and %s both have partition %d of topic %s",
            *(self.group_id, other_id, member_id, number, topic_id),
        )
        other, member = self.members.get(other_id), self.members[member_id]
        return other_id if other is not None and other.current.epoch > member.current.epoch else member_id

    def free(self, member_id: str, topic_id: UUID, numbers: Set[int]) -> Collection[int]:
        """Return those partitions of a topic that no member but the given one has."""
        owners = self._owners.get(topic_id)
        return numbers if owners is None else [each for each in numbers if owners.get(each, member_id) == member_id]

    def check_commit(self, member_id: str, epoch: int, partitions: Iterable[tuple[UUID | None, int]]) -> None:
        """Check that a member may commit offsets of partitions. Raises ApiError.

        A member with an earlier epoch may commit offsets of partitions that it has had since that epoch or before. A
        client without a member epoch may commit while the group has no members.
        """
        if epoch < 0 and not self.members:
            return
        current = self._current_of(member_id)
        if epoch == current.epoch:
            return
        if epoch < current.epoch and all(_had(current, epoch, topic_id, number) for topic_id, number in partitions):
            return
        raise ApiError(ErrorCode.STALE_MEMBER_EPOCH, f"the member epoch is {epoch}, but must be {current.epoch}")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member may read committed offsets. Raises ApiError."""
        if member_id is None and epoch < 0:
            return
        current = self._current_of(member_id or "")
        if epoch != current.epoch:
            is_classic = self.members[member_id or ""].is_classic
            code = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
            raise ApiError(code, f"the member epoch is {epoch}, but must be {current.epoch}")

    def _current_of(self, member_id: str) -> Current:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"the group has no member {member_id}")
        return member.current


def _held(current: Current) -> Owned:
    """Return the partitions that a member has, or still has to revoke.

    The epochs of a topic stay the same object if nothing changes: a member may have thousands of topics.
    """
    if not current.revoking:
        return current.assigned
    both = {**current.assigned, **current.revoking}
    for topic_id in current.revoking.keys() & current.assigned.keys():
        both[topic_id] = {**current.assigned[topic_id], **current.revoking[topic_id]}
    return both


def _had(current: Current, epoch: int, topic_id: UUID | None, number: int) -> bool:
    """True if the member has had the partition since the epoch, or since an earlier one."""
    since = _epoch_of(current.assigned, topic_id, number)
    since = _epoch_of(current.revoking, topic_id, number) if since is None else since
    return since is not None and since <= epoch


def _epoch_of(owned: Owned, topic_id: UUID | None, number: int) -> int | None:
    epochs: Mapping[int, int] = NOTHING if topic_id is None else owned.get(topic_id, NOTHING)
    return epochs.get(number)
