"""The expiry of committed offsets, and of Empty groups that have no offsets left (KIP-211)."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_, itemgetter
from typing import Final

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.offsets import Offsets, expiries
from barnabas_broker.coordinators.groups.records import CommittedOffset
from barnabas_broker.coordinators.groups.removal import as_classic, remove_group, remove_offsets
from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.modern.consumer_group import ConsumerGroup
from barnabas_broker.coordinators.runtime.alarms import Now
from barnabas_broker.coordinators.runtime.turns import Pace, portions
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_WARN_AT_RETENTION_FRACTION: Final = 7
"""A warning is logged for offsets whose remaining time is at most the retention time divided by this number."""
_PER_GROUP: Final = 10
"""The cost of checking a group for expired offsets, in units of the cost of checking one offset."""


@dataclass(slots=True)
class _Found:
    """The offsets of a group that have expired, and the number of offsets that expire soon."""

    now: Now
    retention_ms: int
    expired: list[tuple[TopicPartition, CommittedOffset]] = field(default_factory=list)
    expiring: int = 0
    first_at_ms: int | None = None

    def look(self, group: Group | ConsumerGroup, offsets: Offsets) -> None:
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
            found.look(group, {partition: offsets[partition] for partition in some if partition in offsets})
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
