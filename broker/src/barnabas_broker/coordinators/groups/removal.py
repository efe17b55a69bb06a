"""What takes groups and offsets away: DeleteGroups, OffsetDelete, deleted topics, and time (KIP-211).

All of them write tombstones and change nothing before those are committed. A group that is being deleted is Dead from
the decision until the fate of its tombstones is known, so that nobody joins or commits in between: those who did would
be gone with it.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.offsets import check_delete_group, check_delete_offsets, expiries
from barnabas_broker.coordinators.groups.records import GroupKey, OffsetKey, Record
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_WARN_AT_RETENTION_FRACTION: Final = 7
"""A warning when a seventh of the retention is left: a day of Kafka's default week."""


def delete_group(shard: GroupShard, group_id: str, answer: Callable[[ErrorCode], object]) -> None:
    """Delete a group without members and all its offsets."""
    group = shard.tables.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else check_delete_group(group)
    if group is None or error is not ErrorCode.NONE:
        answer(error)
        return
    doomed, since_ms = group, group.state_timestamp_ms
    offsets = _committed_or_about_to_be(shard, group_id)
    shard.counters.offset_deletions += len(offsets)
    doomed.transition(GroupState.DEAD, shard.now())

    def revive() -> None:
        if shard.tables.groups.get(group_id) is doomed:
            doomed.transition(GroupState.EMPTY, shard.now())
            doomed.state_timestamp_ms = since_ms

    def finished(error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            shard.writer.when_idle(group_id, revive)
        answer(error)

    shard.writer.submit(group_id, [*_tombstones(group_id, offsets), Record(GroupKey(group_id), None)], finished)


def delete_offsets(
    shard: GroupShard,
    group_id: str,
    partitions: Sequence[TopicPartition],
    answer: Callable[[ErrorCode, list[ErrorCode]], object],
) -> None:
    """Delete offsets of topics that no member uses; answers with an error for all, or one for each partition."""
    group = shard.tables.groups.get(group_id)
    error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else check_delete_offsets(group)
    if group is None or error is not ErrorCode.NONE:
        answer(error, [])
        return
    in_use = [group.is_subscribed_to(partition.topic) for partition in partitions]
    free = [partition for partition, used in zip(partitions, in_use, strict=True) if not used]
    there = _committed_or_about_to_be(shard, group_id)
    records = _tombstones(group_id, [partition for partition in free if partition in there])
    shard.counters.offset_deletions += len(records)
    checks = [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE for used in in_use]
    shard.writer.submit(group_id, records, lambda failure: answer(failure, [] if failure else checks))


def _committed_or_about_to_be(shard: GroupShard, group_id: str) -> dict[TopicPartition, None]:
    """The partitions with an offset of the group."""
    pending = (key for key, _ in shard.writer.pending(group_id))
    about_to_be = [TopicPartition(key.topic, key.partition) for key in pending if isinstance(key, OffsetKey)]
    return dict.fromkeys([*shard.tables.offsets.get(group_id, ()), *about_to_be])


def forget_topics(shard: GroupShard, topics: Collection[str]) -> None:
    """Topics are deleted: so are all offsets in them, also those that are about to be committed."""
    for group_id in list(shard.tables.groups):
        shard.writer.when_idle(group_id, partial(_forget_topics_of, shard, group_id, topics))


def _forget_topics_of(shard: GroupShard, group_id: str, topics: Collection[str]) -> None:
    offsets = shard.tables.offsets.get(group_id, {})
    gone = [partition for partition in offsets if partition.topic in topics]
    if gone:
        _logger.info("group %s: %d offsets of deleted topics are removed", group_id, len(gone))
        shard.counters.offset_deletions += len(gone)
        shard.writer.submit(group_id, _tombstones(group_id, gone), lambda _: None)


def forget_missing_topics(shard: GroupShard) -> None:
    """Topics may have been deleted while nobody, or another broker, coordinated these groups."""
    topics = {partition.topic for offsets in shard.tables.offsets.values() for partition in offsets}
    missing = {topic for topic in topics if not shard.environment.topic_exists(topic)}
    if missing:
        forget_topics(shard, missing)


def expire(shard: GroupShard, warned: set[str]) -> None:
    """Remove offsets that have had their time, and Empty groups without any; warn, once, of those that soon will
    have.
    """
    for group in list(shard.tables.groups.values()):
        if not shard.writer.is_writing(group.group_id) and group.state is not GroupState.DEAD:
            _expire_of(shard, group, warned)


def _expire_of(shard: GroupShard, group: Group, warned: set[str]) -> None:
    group_id, config, now_ms = group.group_id, shard.environment.config, shard.now().wall_ms
    offsets = shard.tables.offsets.get(group_id, {})
    ends = dict(expiries(group, offsets, config.offsets_retention_ms))
    expired = [partition for partition, at_ms in ends.items() if at_ms <= now_ms]
    if expired:
        _logger.info("group %s: %d of %d offsets expire", group_id, len(expired), len(offsets))
        shard.counters.offset_expirations += len(expired)
    if len(expired) == len(offsets) and group.state is GroupState.EMPTY and not group.pending_joins:
        warned.discard(group_id)
        delete_group(shard, group_id, lambda _: None)
        return
    if expired:
        shard.writer.submit(group_id, _tombstones(group_id, expired), lambda _: None)
    _warn(group_id, ends, now_ms, config.offsets_retention_ms // _WARN_AT_RETENTION_FRACTION, warned)


def _warn(group_id: str, ends: dict[TopicPartition, int], now_ms: int, horizon_ms: int, warned: set[str]) -> None:
    left_ms = [at_ms - now_ms for at_ms in ends.values() if now_ms < at_ms <= now_ms + horizon_ms]
    if not left_ms:
        warned.discard(group_id)
    elif group_id not in warned:
        warned.add(group_id)
        message = "group %s: %d offsets will expire, the first in %d minutes, unless a member commits or joins"
        _logger.warning(message, group_id, len(left_ms), min(left_ms) // 60_000)


def _tombstones(group_id: str, partitions: Iterable[TopicPartition]) -> list[Record]:
    return [Record(OffsetKey(group_id, topic, partition), None) for topic, partition in partitions]
