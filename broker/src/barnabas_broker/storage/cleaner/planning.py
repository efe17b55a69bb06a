"""The plan of a compaction: a log's dirty section, whether the log is due for compaction, and the segments to merge."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segment_indexes import RELATIVE_OFFSET_MAX
from barnabas_core.config.log_config import LONG_MAX, LogConfig


class DirtySection(NamedTuple):
    """The section of a log that is not compacted yet and may be compacted now."""

    start_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """True if the first batch of a dirty segment is older than `max.compaction.lag.ms`."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes among the bytes that a compaction of the log would read, 0 to 1."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """True if `ratio` is above `min.cleanable.dirty.ratio`, or a dirty segment is too old (`is_overdue`)."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.ratio > config.min_cleanable_dirty_ratio)


def dirty_section(log: Log, stable_offset: int, now_ms: int) -> DirtySection:
    """Return the section of the log that can be compacted now.

    The section has whole segments, without the active segment. It ends before the first segment with records younger
    than `min.compaction.lag.ms`, and at or below `stable_offset` and the recovery point: above the recovery point, a
    power failure could lose the newest value of a key after compaction has removed the older value. Raises OSError or
    InvalidBatch if the timestamps of a segment cannot be read.
    """
    start = max(log.log_start_offset, log.compaction.clean_until or 0)
    safe_end, config = min(stable_offset, log.syncs.recovery_point), log.config
    cleanable: list[tuple[Segment, int]] = []
    for segment, following in pairwise(log.segments):
        is_dirty = following.base_offset > start
        if following.base_offset > safe_end or (is_dirty and _is_young(segment, config, now_ms)):
            break
        cleanable.append((segment, following.base_offset))
    dirty = [segment for segment, segment_end in cleanable if segment_end > start]
    clean_bytes = sum(segment.size_bytes for segment, segment_end in cleanable if segment_end <= start)
    end = cleanable[-1][1] if cleanable else start
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    return DirtySection(start, max(start, end), clean_bytes, dirty_bytes, _is_overdue(dirty, config, now_ms))


def _is_young(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    lag_ms = config.min_compaction_lag_ms
    return lag_ms > 0 and segment.largest_timestamp()[0] > now_ms - lag_ms


def _is_overdue(dirty: Iterable[Segment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms == LONG_MAX:
        return False
    oldest_ms = (segment.first_timestamp_ms for segment in dirty)
    return any(0 <= timestamp_ms < now_ms - config.max_compaction_lag_ms for timestamp_ms in oldest_ms)


def segments_to_rewrite(log: Log, end_offset: int) -> list[list[Segment]]:
    """Return the segments that begin below `end_offset`, in groups that each become one new segment.

    A group respects `segment.bytes`, `segment.index.bytes`, and the 2^31 offsets that index entries can express.
    """
    bounds = [(one, following.base_offset) for one, following in pairwise(log.segments)]
    groups: list[list[Segment]] = []
    for segment, segment_end in bounds:
        if segment.base_offset >= end_offset:
            break
        if groups and _fits(groups[-1], segment, segment_end, log.config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(group: Sequence[Segment], segment: Segment, segment_end: int, config: LogConfig) -> bool:
    together = [*group, segment]
    return (
        sum(each.size_bytes for each in together) <= config.segment_bytes
        and sum(each.indexes.size_bytes for each in together) <= config.index_bytes_max
        and segment_end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
    )
