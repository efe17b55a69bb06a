"""The batches in the bytes of a follower's fetch, as far as they follow the log. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas_broker.wire.record_batch import (
    HEADER_BYTES,
    LENGTH_OFFSET,
    MAGIC,
    BatchHeader,
    crc_matches,
    parse_header,
)
from barnabas_core.errors import ApiError, ErrorCode


class AppendPosition(NamedTuple):
    """The end of a log that the next batch has to follow: its offset, its epoch, and whether the log is empty."""

    offset: int
    epoch: int
    is_empty: bool


def fetched_batches(records: memoryview, end: AppendPosition, leader_epoch_max: int) -> list[BatchHeader]:
    """Return the headers of the whole batches in `records`, one behind the other.

    Offsets and epochs rise, with the gaps that compaction leaves; the first batch of an empty log may begin before its
    end, where the leader's records were deleted up to the middle of that batch. A cut last batch is left out, and so
    is all from the first batch on of an epoch later than `leader_epoch_max`: a leader that has lost its epoch may send
    what its successor wrote (KAFKA-18723). ApiError CORRUPT_MESSAGE when one cannot follow.
    """
    headers: list[BatchHeader] = []
    offset, epoch, _ = end
    for position, header in _whole_batches(records):
        if header.leader_epoch > leader_epoch_max:
            break
        if header.base_offset < offset and not (end.is_empty and not headers and header.last_offset >= offset):
            raise _corrupt(header, f"offset {offset} was expected")
        if header.leader_epoch < epoch:
            raise _corrupt(
                header, f"its leader epoch is {header.leader_epoch}, below that of the batch before it, {epoch}"
            )
        if not crc_matches(records, position, header):
            raise _corrupt(header, "its CRC-32C does not match its bytes")
        headers.append(header)
        offset, epoch = header.last_offset + 1, header.leader_epoch
    return headers


def has_gap(headers: Sequence[BatchHeader], offset: int) -> bool:
    """True if compaction has removed records from these batches, or between them, from `offset` on."""
    for header in headers:
        if header.base_offset > offset or header.record_count <= header.last_offset_delta:
            return True
        offset = header.last_offset + 1
    return False


def _whole_batches(records: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    position, left = 0, len(records)
    while left >= HEADER_BYTES:
        header = parse_header(records, position)
        size_bytes = header.length + LENGTH_OFFSET
        if header.magic != MAGIC or size_bytes < HEADER_BYTES or header.last_offset_delta < 0:
            raise _corrupt(header, f"magic {header.magic}, length {header.length}, delta {header.last_offset_delta}")
        if size_bytes > left:
            return
        yield position, header
        position += size_bytes
        left -= size_bytes


def _corrupt(header: BatchHeader, complaint: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"the leader's batch at offset {header.base_offset}: {complaint}")
