"""The deletion of segments by retention: by time, by size, or below the log start offset."""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.config.log_config import LogConfig


class RetentionBounds(NamedTuple):
    """The offsets of a log that limit what retention may delete."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int


@disk_access
def enforce_retention(log: Log, now_ms: int, high_watermark: int) -> int:
    """Delete the segments that exceed retention by time, size or log start offset; return their number."""
    if log.known_producers.are_held_back:  # While the log takes no appends, the active segment cannot be rolled.
        return 0
    bounds = RetentionBounds(log.log_start_offset, log.log_end_offset, high_watermark)
    expired = expired_segments(log.segments, log.config, bounds, now_ms)
    if expired:
        delete_segments(log, expired, now_ms)
    return len(expired)


@disk_access
def delete_segments(log: Log, segments: list[Segment], now_ms: int) -> None:
    """Delete `segments`, the oldest ones of the log; their files are removed after `file.delete.delay.ms`.

    The active segment is deleted last, because it must be rolled first, which may fail on a full disk.
    """
    active, due_ms = log.segments.active, now_ms + log.config.file_delete_delay_ms
    _discard_oldest(log, [segment for segment in segments if segment is not active], due_ms)
    if active in segments:
        log.roll(now_ms)
        _discard_oldest(log, [active], due_ms)


def _discard_oldest(log: Log, segments: list[Segment], due_ms: int) -> None:
    """Delete segments, and raise the log start offset to the first remaining segment, also after an error."""
    try:
        log.removal.discard(segments, due_ms)
    finally:
        log.increment_log_start_offset(log.segments.first.base_offset)


def expired_segments(segments: Segments, config: LogConfig, bounds: RetentionBounds, now_ms: int) -> list[Segment]:
    """Return the oldest segments that exceed a retention rule, none of them above the high watermark.

    The active segment can expire by time or size, as in Kafka, unless it is empty.
    """
    candidates = [segment for segment in segments if _may_go(segment, segments, bounds)]
    rules = [_below_start(segments, bounds)]
    if config.deletes:
        rules += [_too_old(config.retention_ms, now_ms), _too_much(segments.size_bytes, config.retention_bytes)]
    return max((list(takewhile(rule, candidates)) for rule in rules), key=len)


def _may_go(segment: Segment, segments: Segments, bounds: RetentionBounds) -> bool:
    return segment.size_bytes > 0 and segments.end_offset(segment, bounds.log_end_offset) <= bounds.high_watermark


def _below_start(segments: Segments, bounds: RetentionBounds) -> Callable[[Segment], bool]:
    def rule(segment: Segment) -> bool:
        ends = segments.end_offset(segment, bounds.log_end_offset)
        return segment is not segments.active and ends <= bounds.log_start_offset

    return rule


def _too_old(retention_ms: int, now_ms: int) -> Callable[[Segment], bool]:
    return lambda segment: 0 <= retention_ms < now_ms - segment.retention_timestamp_ms()


def _too_much(size_bytes: int, retention_bytes: int) -> Callable[[Segment], bool]:
    """Return a rule that deletes segments while the log exceeds `retention_bytes` by at least a whole segment."""
    excess = size_bytes - retention_bytes if retention_bytes >= 0 else 0

    def rule(segment: Segment) -> bool:
        nonlocal excess
        excess -= segment.size_bytes
        return excess >= 0

    return rule
