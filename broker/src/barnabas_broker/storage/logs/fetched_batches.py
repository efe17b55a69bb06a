"""The batches in a follower's fetch response that continue the follower's log."""

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
    """The end of a log, where the next batch has to continue: offset, latest epoch, and whether the log is empty."""

    offset: int
    epoch: int
    is_empty: bool


def fetched_batches(records: memoryview, end: AppendPosition, leader_epoch_max: int) -> list[BatchHeader]:
    """Return the headers of the complete batches in `records`, in their order.

    Offsets must rise, with gaps where compaction has removed records, and epochs must not fall. In an empty log the
    first batch may begin below the log's end, because the leader may have deleted the first records of that batch. An
    incomplete last batch is left out. If a batch has an epoch above `leader_epoch_max`, this batch and all later
    batches are left out, because a broker that has lost the leadership may send records of the new leader
    (KAFKA-18723). Raises ApiError CORRUPT_MESSAGE if a batch has an invalid header or CRC, or does not continue the
    batch before it.
    """
    headers: list[BatchHeader] = []
    offset, epoch, _ = end
    for position, header in _whole_batches(records):
        if header.leader_epoch > leader_epoch_max:
            break
        if header.base_offset < offset and not (end.is_empty and not headers and header.last_offset >= offset):
            raise _corrupt(header, f"the follower expected offset {offset} or higher")
        if header.leader_epoch < epoch:
            raise _corrupt(
                header, f"the batch's leader epoch is {header.leader_epoch}, below epoch {epoch} of the batch before it"
            )
        if not crc_matches(records, position, header):
            raise _corrupt(header, "the CRC-32C in the batch's header does not match the batch's bytes")
        headers.append(header)
        offset, epoch = header.last_offset + 1, header.leader_epoch
    return headers


def has_gap(headers: Sequence[BatchHeader], offset: int) -> bool:
    """True if compaction has removed records at or after `offset`, within or between the batches of `headers`."""
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
            raise _corrupt(
                header,
                f"the batch's header has magic {header.magic}, length {header.length} and last offset "
                f"delta {header.last_offset_delta}; these cannot all be valid",
            )
        if size_bytes > left:
            return
        yield position, header
        position += size_bytes
        left -= size_bytes


def _corrupt(header: BatchHeader, complaint: str) -> ApiError:
    return ApiError(
        ErrorCode.CORRUPT_MESSAGE, f"the leader's batch at offset {header.base_offset} is invalid: {complaint}"
    )
