"""A consumer group of KIP-848: a modern group in which each partition has one owner, and members have member epochs.

The group also decides whose commits and reads of offsets are current (KIP-1251).
"""

import logging
from collections.abc import Iterable, Mapping
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
        self._owners: dict[UUID, dict[int, tuple[str, int]]] = {}
        """The member that has each partition, or still has to revoke it, with the epoch of the member."""

    def set_current(self, member_id: str, current: Current | None) -> None:
        """Set what a member has now, also in the index of owners."""
        member = self.members.get(member_id)
        if member is not None:
            self._disown(member_id, member.current)
        super().set_current(member_id, current)
        if current is not None:
            for owned in (current.assigned, current.revoking):
                self._own(member_id, current.epoch, owned)

    def _disown(self, member_id: str, current: Current) -> None:
        for topic_id in current.assigned.keys() | current.revoking.keys():
            owners = self._owners.get(topic_id, {})
            for owned in (current.assigned, current.revoking):
                for number in owned.get(topic_id, NOTHING):
                    owner = owners.get(number)
                    if owner is not None and owner[0] == member_id:
                        del owners[number]
            if not owners:
                self._owners.pop(topic_id, None)

    def _own(self, member_id: str, epoch: int, owned: Owned) -> None:
        """Enter partitions of a member in the index. Of two owners, which only a load can find, the later one stays."""
        for topic_id, numbers in owned.items():
            owners = self._owners.setdefault(topic_id, {})
            for number in numbers:
                other_id, other_epoch = owners.get(number, (member_id, epoch))
                if other_id != member_id:
                    _logger.warning(
                        "group %s: the members %s and %s both have partition %d of topic %s",
                        *(self.group_id, other_id, member_id, number, topic_id),
                    )
                if other_epoch <= epoch:
                    owners[number] = member_id, epoch

    def is_free(self, member_id: str, topic_id: UUID, number: int) -> bool:
        """True if no member but the given one has the partition."""
        owner = self._owners.get(topic_id, NOTHING).get(number)
        return owner is None or owner[0] == member_id

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


def _had(current: Current, epoch: int, topic_id: UUID | None, number: int) -> bool:
    """True if the member has had the partition since the epoch, or since an earlier one."""
    since = _epoch_of(current.assigned, topic_id, number)
    since = _epoch_of(current.revoking, topic_id, number) if since is None else since
    return since is not None and since <= epoch


def _epoch_of(owned: Owned, topic_id: UUID | None, number: int) -> int | None:
    epochs: Mapping[int, int] = NOTHING if topic_id is None else owned.get(topic_id, NOTHING)
    return epochs.get(number)
