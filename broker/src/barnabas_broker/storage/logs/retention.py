"""The choice of segments that retention deletes: by time, by size, or below the log start offset."""

from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.config.log_config import LogConfig


class RetentionBounds(NamedTuple):
    """The offsets of a log that limit what retention may delete."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int


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
