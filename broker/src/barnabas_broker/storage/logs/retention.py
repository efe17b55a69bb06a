"""The deletion of segments by retention: by time, by size, or below the log start offset."""

from collections.abc import Callable
from itertools import takewhile

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import Segment


@disk_access
def enforce_retention(log: Log, now_ms: int) -> int:
    """Delete the segments that exceed retention by time, size or log start offset; return their number."""
    # Nothing is deleted while the log refuses appends, because the active segment cannot be rolled.
    if log.known_producers.are_held_back:
        return 0
    expired = _expired_segments(log, now_ms)
    if expired:
        delete_segments(log, expired, now_ms)
    return len(expired)


@disk_access
def delete_segments(log: Log, segments: list[Segment], now_ms: int) -> None:
    """Delete `segments`, the oldest ones of the log; their files are removed after `file.delete.delay.ms`.

    If the active segment is in `segments`, it is deleted last: a new active segment must be created before, which may
    fail on a full disk.
    """
    active, due_ms = log.segments.active, now_ms + log.config.file_delete_delay_ms
    _discard_oldest(log, [segment for segment in segments if segment is not active], due_ms)
    if active in segments:
        log.roll(now_ms)
        _discard_oldest(log, [active], due_ms)


def _discard_oldest(log: Log, segments: list[Segment], due_ms: int) -> None:
    """Delete segments. Even if a deletion fails, advance the log start offset to the first remaining segment."""
    try:
        log.removal.discard(segments, due_ms)
    finally:
        log.increment_log_start_offset(log.segments.first.base_offset)


def _expired_segments(log: Log, now_ms: int) -> list[Segment]:
    """Return the oldest segments that exceed a retention rule, none of them above the high watermark.

    The active segment can expire by time or size, as in Kafka, unless it is empty.
    """
    segments, config = log.segments, log.config
    candidates = [each for each in segments if each.size_bytes > 0 and _end_offset(log, each) <= log.high_watermark]
    rules = [_below_start(log)]
    if config.deletes:
        rules += [_too_old(config.retention_ms, now_ms), _too_much(segments.size_bytes, config.retention_bytes)]
    return max((list(takewhile(rule, candidates)) for rule in rules), key=len)


def _end_offset(log: Log, segment: Segment) -> int:
    return log.segments.end_offset(segment, log.log_end_offset)


def _below_start(log: Log) -> Callable[[Segment], bool]:
    active, start_offset = log.segments.active, log.log_start_offset
    return lambda segment: segment is not active and _end_offset(log, segment) <= start_offset


def _too_old(retention_ms: int, now_ms: int) -> Callable[[Segment], bool]:
    return lambda segment: 0 <= retention_ms < now_ms - segment.retention_timestamp_ms()


def _too_much(size_bytes: int, retention_bytes: int) -> Callable[[Segment], bool]:
    """Return a rule that is true for a segment if all newer segments together have at least `retention_bytes`.

    Call the rule for one segment after the other, the oldest first.
    """
    excess = size_bytes - retention_bytes if retention_bytes >= 0 else 0

    def rule(segment: Segment) -> bool:
        nonlocal excess
        excess -= segment.size_bytes
        return excess >= 0

    return rule
