"""Finds records by time: the segment by its largest timestamp, the batch by the time index, the record by decoding."""

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas_broker.storage.batch_scan import FoundBatch
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.segment_indexes import NO_TIMESTAMP
from barnabas_broker.storage.segments import Segments
from barnabas_broker.wire.records import BrokenRecords, Record, decode_batch

DECODED_BYTES_MAX: Final = 64 << 20
"""Of one batch, uncompressed; what unpacks to more is not looked into."""


class TimestampOffset(NamedTuple):
    """A record's timestamp, offset and leader epoch."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def first_record_since(segments: Segments, timestamp_ms: int, offset_min: int) -> TimestampOffset | None:
    """The first record, from `offset_min` on, whose timestamp is `timestamp_ms` or later."""
    for segment in segments.starting_at(offset_min):
        if segment.largest_timestamp()[0] >= timestamp_ms:
            for batch in segment.batches_since(timestamp_ms, offset_min):
                wanted = _since(timestamp_ms, offset_min - batch.header.base_offset)
                found = _find_record(segment, batch, wanted)
                if found:
                    return found
    return None


def _since(timestamp_ms: int, offset_delta_min: int) -> Callable[[Record], bool]:
    return lambda record: record.timestamp_ms >= timestamp_ms and record.offset_delta >= offset_delta_min


def record_with_largest_timestamp(segments: Segments) -> TimestampOffset | None:
    """The first such record; None when no record has a timestamp."""
    segment = max(segments, key=lambda each: each.largest_timestamp()[0])
    timestamp_ms, offset = segment.largest_timestamp()
    batch = segment.find(offset) if timestamp_ms > NO_TIMESTAMP else None
    return _find_record(segment, batch, lambda record: record.timestamp_ms == timestamp_ms) if batch else None


def _find_record(segment: Segment, batch: FoundBatch, wanted: Callable[[Record], bool]) -> TimestampOffset | None:
    """A batch that cannot be looked into stands as a whole: a reader that begins there misses nothing."""
    header = batch.header
    data = segment.file.read_at(batch.position, header.size_bytes)
    try:
        records = decode_batch(data, 0, header, DECODED_BYTES_MAX)
    except BrokenRecords:
        return TimestampOffset(header.max_timestamp_ms, header.base_offset, header.leader_epoch)
    for record in records:
        if wanted(record):
            return TimestampOffset(record.timestamp_ms, header.base_offset + record.offset_delta, header.leader_epoch)
    return None
