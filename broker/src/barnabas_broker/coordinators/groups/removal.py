"""The removal of groups and offsets: by requests, after the deletion of topics, and when they expire.

Each removal writes tombstones, which take effect once they are committed. A group that is being deleted is Dead until
its tombstones are committed or have failed, so that no member joins and no client commits offsets in the meantime.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import is_, itemgetter
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups.consumer_groups import make_room
from barnabas_broker.coordinators.groups.group import (
    Group,
    GroupState,
    Offsets,
    check_delete_group,
    check_delete_offsets,
    expiries,
)
from barnabas_broker.coordinators.groups.messages import CommittedOffset, GroupKey, GroupRecord, OffsetKey
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_broker.coordinators.runtime.turns import Now, Pace, portions
from barnabas_broker.metadata.model import TombstoneDocument
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_PER_GROUP: Final = 10
"""The cost of checking a group for offsets to remove, in units of the cost of checking one offset."""


def delete_group(shard: GroupShard, group_id: str, answer: Callable[[ErrorCode], object]) -> None:
    """Delete a group and all its offsets if the group is Empty; otherwise answer with an error."""
    if group_id in shard.share.groups.by_id:
        shard.share.delete(group_id, answer)
        return
    modern = shard.modern.by_id.get(group_id)
    if modern is not None:
        if modern.members:
            answer(ErrorCode.NON_EMPTY_GROUP)
            return
        shard.counters.offset_deletions += remove_group(shard, as_classic(shard, group_id), answer)
        return
    group = shard.tables.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else check_delete_group(group)
    if group is None or error is not ErrorCode.NONE:
        answer(error)
        return
    shard.counters.offset_deletions += remove_group(shard, group, answer)


def as_classic(shard: GroupShard, group_id: str) -> Group:
    """Return the group, which has no members; change it to a classic one if it is not, for these can be removed."""
    make_room(shard, group_id)
    return shard.tables.group(group_id)


def remove_group(shard: GroupShard, group: Group, answer: Callable[[ErrorCode], object]) -> int:
    """Delete an Empty group and its offsets with tombstones, then answer; return the number of deleted offsets."""
    group_id, since_ms = group.group_id, group.state_timestamp_ms
    offsets = [*shard.tables.offsets.get(group_id, ()), *_about_to_be_committed(shard, group_id)]
    group.transition(GroupState.DEAD, shard.now())

    def revive() -> None:
        if shard.tables.groups.get(group_id) is group:
            group.transition(GroupState.EMPTY, shard.now()._replace(wall_ms=since_ms))

    def finished(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            shard.writer.when_idle(group_id, revive)
        answer(error)

    _write_deletion(shard, group_id, offsets, finished)
    return len(offsets)


def _write_deletion(
    shard: GroupShard, group_id: str, offsets: Sequence[TopicPartition], answer: Callable[[ErrorCode], object]
) -> None:
    """Write the tombstones of all offsets, then the tombstone of the group; answer with the first error."""
    first_error = ErrorCode.NONE

    def written(error: ErrorCode) -> None:
        nonlocal first_error
        first_error = first_error or error

    def last_written(error: ErrorCode) -> None:
        answer(first_error or error)

    def slices() -> Iterator[None]:
        for some in portions(offsets[:-1]):
            shard.writer.submit(group_id, _tombstones(group_id, some), written)
            yield
        last = [*_tombstones(group_id, offsets[-1:]), GroupRecord(GroupKey(group_id), None)]
        shard.writer.submit(group_id, last, last_written)

    shard.turns.run(slices())


def delete_offsets(
    shard: GroupShard,
    group_id: str,
    partitions: Sequence[TopicPartition],
    answer: Callable[[ErrorCode, list[ErrorCode]], object],
) -> None:
    """Delete the offsets of `partitions`, except for topics that a member subscribes to.

    `answer` is called with an error code for the request, and an error code for each partition.
    """
    group = shard.find(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND
    if group is not None:
        error = check_delete_offsets(group) if isinstance(group, Group) else ErrorCode.NONE
    if group is None or error is not ErrorCode.NONE:
        answer(error, [])
        return
    in_use = [group.is_subscribed_to(partition.topic) for partition in partitions]
    free = [partition for partition, used in zip(partitions, in_use, strict=True) if not used]
    committed, about_to_be = shard.tables.offsets.get(group_id, {}), _about_to_be_committed(shard, group_id)
    there = [partition for partition in free if partition in committed or partition in about_to_be]
    records = _tombstones(group_id, there)
    shard.counters.offset_deletions += len(records)
    checks = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE for used in in_use]
    shard.writer.submit(group_id, records, lambda failure: answer(failure, [] if failure else checks))


def _about_to_be_committed(shard: GroupShard, group_id: str) -> dict[TopicPartition, None]:
    """Return the partitions without a committed offset for which an uncommitted offset exists.

    The uncommitted offset is being written, or is part of an open transaction.
    """
    committed = shard.tables.offsets.get(group_id, {})
    pending = (record.key for record in shard.writer.pending(group_id) if isinstance(record, GroupRecord))
    keys = [TopicPartition(key.topic, key.partition) for key in pending if isinstance(key, OffsetKey)]
    return {partition: None for partition in (*keys, *shard.unstable(group_id)) if partition not in committed}


def forget_topics(shard: GroupShard, deleted: Mapping[UUID, TombstoneDocument]) -> Iterator[None]:
    """Remove the offsets and share state of deleted topics; `deleted` has their tombstones by topic id.

    An offset with a topic id is removed if that topic was deleted, even if a new topic has the same name. An offset
    without a topic id, from an older record, is removed if it was committed before a topic of that name was deleted. A
    later commit is for a later topic, even if the metadata image lacks this topic.
    """
    deleted_at_ms: dict[str, int] = {}
    for tombstone in deleted.values():
        deleted_at_ms[tombstone.name] = max(tombstone.deleted_at_ms, deleted_at_ms.get(tombstone.name, 0))

    def is_of_deleted_topic(partition: TopicPartition, offset: CommittedOffset) -> bool:
        if offset.topic_id is not None:
            return offset.topic_id in deleted
        return partition.topic in deleted_at_ms and offset.commit_timestamp_ms <= deleted_at_ms[partition.topic]

    yield from shard.share.forget_topics(deleted.keys())
    yield from _forget(shard, is_of_deleted_topic)


def _forget(shard: GroupShard, is_doomed: Callable[[TopicPartition, CommittedOffset], bool]) -> Iterator[None]:
    """Remove the offsets for which `is_doomed` returns True from all groups.

    The offsets of a group are removed once none of its records is being written.
    """
    pace = Pace()
    pending = shard.writer.transactions
    for group_id in pending.names:
        shard.writer.when_idle(group_id, partial(_forget_pending, shard, group_id, is_doomed))
        if pace.spent(_PER_GROUP + pending.count(group_id)):
            yield
    for group_id in list(shard.tables.offsets):
        shard.writer.when_idle(group_id, partial(_forget_in_group, shard, group_id, is_doomed))
        if pace.spent(_PER_GROUP + len(shard.tables.offsets.get(group_id, ()))):
            yield


def _forget_in_group(
    shard: GroupShard, group_id: str, is_doomed: Callable[[TopicPartition, CommittedOffset], bool]
) -> None:
    offsets = shard.tables.offsets.get(group_id, {})
    gone = [(partition, offset) for partition, offset in offsets.items() if is_doomed(partition, offset)]
    if gone:
        _logger.info(
            "group %s: %d committed offsets are removed, because their topics were deleted", group_id, len(gone)
        )
        shard.counters.offset_deletions += len(gone)
        remove_offsets(shard, group_id, gone)


def _forget_pending(
    shard: GroupShard, group_id: str, is_doomed: Callable[[TopicPartition, CommittedOffset], bool]
) -> None:
    """Remove the pending offsets of open transactions for which `is_doomed` returns True.

    Partitions that also have a committed offset are skipped: `_forget_in_group` writes a tombstone for the committed
    offset, and the tombstone removes the pending offset, too.
    """
    committed, gone = shard.tables.offsets.get(group_id, {}), dict[TopicPartition, None]()
    for record in shard.writer.transactions.of(group_id):
        key, offset = record.key, record.value  # type: ignore[union-attr]
        if isinstance(key, OffsetKey) and isinstance(offset, CommittedOffset):
            partition = TopicPartition(key.topic, key.partition)
            if partition not in committed and is_doomed(partition, offset):
                gone[partition] = None
    shard.counters.offset_deletions += len(gone)
    shard.writer.submit(group_id, _tombstones(group_id, gone), lambda _: None)


def forget_deleted_topics(shard: GroupShard) -> Iterator[None]:
    """Remove the offsets of topics that were deleted before this broker loaded the groups.

    Only topics with a tombstone count as deleted: the metadata of any other missing topic may be restored.
    """
    deleted = shard.environment.deleted_topics()
    return forget_topics(shard, deleted) if deleted else iter(())


def remove_offsets(shard: GroupShard, group_id: str, doomed: Sequence[tuple[TopicPartition, CommittedOffset]]) -> None:
    """Write tombstones in portions, each when no record of the group is being written.

    An offset that a client has committed again after this call gets no tombstone.
    """
    rest = portions(doomed)

    def go_on() -> None:
        offsets = shard.tables.offsets.get(group_id, {})
        for some in () if shard.writer.is_closed else rest:
            unchanged = [partition for partition, offset in some if offsets.get(partition) is offset]
            if unchanged:
                shard.writer.submit(group_id, _tombstones(group_id, unchanged), lambda _: None)
                shard.writer.when_idle(group_id, go_on)
                return

    shard.writer.when_idle(group_id, go_on)


def _tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[GroupRecord]:
    return [GroupRecord(OffsetKey(group_id, topic, partition), None) for topic, partition in partitions]


_WARN_AT_RETENTION_FRACTION: Final = 7
"""A warning is logged for offsets whose remaining time is at most the retention time divided by this number."""


class _Found(msgspec.Struct):
    """The offsets of a group that have expired, and the number of offsets that expire soon."""

    now: Now
    retention_ms: int
    expired: list[tuple[TopicPartition, CommittedOffset]] = msgspec.field(default_factory=list)
    expiring: int = 0
    first_at_ms: int | None = None

    def add(self, group: Group | ConsumerGroup, offsets: Offsets) -> None:
        """Check the given offsets of a group: add expired offsets to `expired`, and count offsets that expire soon."""
        horizon_ms = self.now.wall_ms + self.retention_ms // _WARN_AT_RETENTION_FRACTION
        for partition, at_ms in expiries(group, offsets, self.retention_ms):
            if at_ms <= self.now.wall_ms:
                self.expired.append((partition, offsets[partition]))
            elif at_ms <= horizon_ms:
                self.expiring += 1
                self.first_at_ms = at_ms if self.first_at_ms is None else min(at_ms, self.first_at_ms)


def expire(shard: GroupShard, warned: set[str]) -> Iterator[None]:
    """Remove expired offsets and Empty groups without offsets, in portions between which other tasks may run.

    Log one warning for each group whose offsets expire soon.
    """
    pace = Pace()
    retention_ms = shard.environment.config.offsets_retention_minutes * 60_000
    groups: list[Group | ConsumerGroup] = [*shard.tables.groups.values(), *shard.modern.by_id.values()]
    for group in groups:
        found = _Found(shard.now(), retention_ms)
        state = _version(group)
        offsets = shard.tables.offsets.get(group.group_id, {})
        for some in portions(list(offsets)):
            found.add(group, {partition: offsets[partition] for partition in some if partition in offsets})
            if pace.spent(len(some)):
                yield
        if _is_idle(shard, group) and _version(group) == state:
            _expire_of(shard, group, found, warned)
        if pace.spent(_PER_GROUP + shard.writer.transactions.count(group.group_id)):
            yield


def _version(group: Group | ConsumerGroup) -> tuple[object, int]:
    """Return a value that changes with the subscriptions of the group, or when its members have left."""
    return (group.state, group.state_timestamp_ms) if isinstance(group, Group) else (bool(group.members), group.epoch)


def _is_idle(shard: GroupShard, group: Group | ConsumerGroup) -> bool:
    """True if the group still exists, is not Dead, and none of its records is being written."""
    group_id = group.group_id
    is_here = not shard.writer.is_closed and shard.find(group_id) is group
    return is_here and group.state is not GroupState.DEAD and not shard.writer.is_writing(group_id)


def _expire_of(shard: GroupShard, group: Group | ConsumerGroup, found: _Found, warned: set[str]) -> None:
    group_id, unstable = group.group_id, shard.unstable(group.group_id)
    expired = [each for each in found.expired if each[0] not in unstable]
    offsets = shard.tables.offsets.get(group_id, {})
    if expired:
        _logger.info(
            "group %s: %d of %d committed offsets have expired and are removed", group_id, len(expired), len(offsets)
        )
        shard.counters.offset_expirations += len(expired)
    is_vacant = not group.members
    if isinstance(group, Group):
        is_vacant = group.state is GroupState.EMPTY and not group.pending_joins
    if not unstable and _is_all(expired, offsets) and is_vacant:
        warned.discard(group_id)
        remove_group(shard, as_classic(shard, group_id), lambda _: None)
        return
    remove_offsets(shard, group_id, expired)
    _warn(group_id, found, warned)


def _is_all(expired: Sequence[tuple[TopicPartition, CommittedOffset]], offsets: Offsets) -> bool:
    """Return True if all current offsets of the group have expired."""
    # Only C functions run for each offset, because one turn of the event loop compares all offsets of a large group.
    return len(expired) == len(offsets) and all(map(is_, offsets.values(), map(itemgetter(1), expired)))


def _warn(group_id: str, found: _Found, warned: set[str]) -> None:
    if found.first_at_ms is None:
        warned.discard(group_id)
    elif group_id not in warned:
        warned.add(group_id)
        minutes = (found.first_at_ms - found.now.wall_ms) // 60_000
        message = (
            "group %s: %d committed offsets will expire, the first in %d minutes, unless a member commits or joins"
        )
        _logger.warning(message, group_id, found.expiring, minutes)
