"""The truncation of a follower's log to the offset at which it diverges from the leader's log."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Final, NamedTuple

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.producer_state import Producer
from barnabas_broker.storage.segments.indexes import RELATIVE_OFFSET_MAX
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.wire.key_values import Marker, encode_marker
from barnabas_broker.wire.record_batch import (
    HEADER_BYTES,
    LENGTH_OFFSET,
    MAGIC,
    BatchHeader,
    assign_offset,
    crc_matches,
    parse_header,
)
from barnabas_core.errors import ApiError, ErrorCode


@disk_access
def truncate_to(log: Log, offset: int) -> None:
    """Truncate the log to `offset`. Raises StorageError.

    Leader epochs that begin at the new log end offset or later are dropped, even epochs without records. If `offset` is
    in the compacted section of the log, the log is emptied instead: compaction has removed older values of keys whose
    newer values would be truncated, so the follower must fetch the older values from the leader again.
    """
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
    elif offset < log.segments.first.base_offset:
        truncate_fully_and_start_at(log, offset, 0)
    elif offset < log.compaction.until:
        truncate_fully_and_start_at(log, min(offset, log.log_start_offset), 0)
    else:
        cut(log, offset)


def cut(log: Log, offset: int) -> None:
    """Truncate the log to `offset`, which must not be below the first segment. Raises OSError.

    Segments that cannot be deleted stay in the log, so the log may then end above `offset`.
    """
    log.segments.truncated()
    log.known_producers.snapshots.remove_after(offset)
    with _dropping_the_end(log):
        log.discard_above(offset)
    log.segments.active.truncate_to(offset)
    _cut_at(log, offset)


@contextmanager
def _dropping_the_end(log: Log) -> Iterator[None]:
    """A context manager for the deletion of segments: after an error, the log ends where the remaining segments end."""
    before = [segment.base_offset for segment in log.segments]
    try:
        yield
    except OSError:
        gone = [base_offset for base_offset in before if base_offset > log.segments.active.base_offset]
        if gone:
            _cut_at(log, min(gone))
        raise


def _cut_at(log: Log, offset: int) -> None:
    """Make `offset` the log end offset, after the files were cut, and drop the producer state above `offset`.

    Other offsets of the log that are higher, such as the recovery point, are lowered to `offset`. The high watermark
    stays.
    """
    log.known_producers.truncate(offset)
    log.ends_at(offset)


@disk_access
def truncate_fully_and_start_at(log: Log, offset: int, now_ms: int) -> None:
    """Delete all segments, the highest first, and begin an empty log at `offset`.

    If `offset` is at or above the end of the first segment, the new segment is created before the first segment is
    deleted; after a power failure between these two steps, recovery removes the new segment. If `offset` is lower, the
    first segment is deleted before the new segment is created, because the offsets of the two segments could overlap.
    """
    log.segments.truncated()
    first, new = log.segments.first, log.new_segment(offset, now_ms)
    is_above = first.base_offset < offset >= log.segments.end_offset(first, log.log_end_offset)
    log.known_producers.snapshots.clear()
    with _dropping_the_end(log):
        log.discard_above(first.base_offset)
        if is_above:
            new.make(then=lambda: log.removal.retire(first, now_ms))
        else:
            log.removal.retire(first, now_ms)
    log.segments.replace([first], [new])
    try:
        log.known_producers.clear()
        log.epochs.clear()
        if not is_above:
            new.make()
    finally:
        log.ends_at(offset)
        log.increment_log_start_offset(offset)


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


@disk_access
def append_as_follower(
    log: Log, records: memoryview, leader_epoch_max: int, leader_high_watermark: int, now_ms: int
) -> int:
    """Append the complete batches that the leader sent, and return their size in bytes (see `fetched_batches`).

    If the offsets have a gap, compaction on the leader has removed records. The newer records with the same keys are
    below the leader's high watermark, so the high watermark is stored in `compaction`. A later truncation below the
    stored high watermark may remove the newer records, too; the truncation therefore empties the log, and all records
    are fetched again. An in-sync replica is never truncated that far. A crash loses the stored high watermark
    (`docs/explanation/storage-guarantees.md`).

    Raises ApiError CORRUPT_MESSAGE before any change if a batch does not continue the log, and another ApiError while a
    truncation is incomplete. After a StorageError the log has only the batches before the failed write.
    """
    log.known_producers.check_not_held_back()
    active, start_offset = log.segments.active, log.log_start_offset
    is_empty = active.size_bytes == 0 and active is log.segments.first
    headers = fetched_batches(
        records, AppendPosition(log.log_end_offset, log.epochs.latest_epoch, is_empty), leader_epoch_max
    )
    if headers and headers[0].base_offset < log.log_end_offset:
        truncate_fully_and_start_at(log, headers[0].base_offset, now_ms)
        log.known_producers.check_not_held_back()
    if has_gap(headers, log.log_end_offset):
        log.compaction.superseded_below(leader_high_watermark)
    position, end_offset = sum(header.length + LENGTH_OFFSET for header in headers), log.log_end_offset
    try:
        if headers and _has_room(log, headers, position, now_ms):
            log.append_fetched(records[:position], headers, leader_high_watermark)
        else:
            _append_rolling(log, records, headers, leader_high_watermark, now_ms)
    finally:  # Batches that were appended before an error need a sync, too.
        if log.log_end_offset >= log.syncs.due_at:
            log.await_sync(end_offset)
    log.increment_log_start_offset(start_offset)
    return position


def _has_room(log: Log, headers: list[BatchHeader], size_bytes: int, now_ms: int) -> bool:
    """True if all batches fit into the active segment, which is the usual case."""
    timestamp_ms = max(header.max_timestamp_ms for header in headers)
    return not log.segments.active.must_roll(log.config, size_bytes, headers[-1].last_offset, timestamp_ms, now_ms)


def _append_rolling(
    log: Log, records: memoryview, headers: list[BatchHeader], high_watermark: int, now_ms: int
) -> None:
    """Append the batches in one write for each segment; roll a segment before each batch that needs a new one."""
    run: list[BatchHeader] = []
    run_start = position = 0
    for header in headers:
        size_bytes = header.length + LENGTH_OFFSET
        run_bytes = position + size_bytes - run_start
        last_offset, timestamp_ms = header.last_offset, header.max_timestamp_ms
        if log.segments.active.must_roll(log.config, run_bytes, last_offset, timestamp_ms, now_ms):
            if run:
                log.append_fetched(records[run_start:position], run, high_watermark)
            _roll_to(log, header, now_ms)
            run_start, run = position, []
        run.append(header)
        position += size_bytes
    if run:
        log.append_fetched(records[run_start:position], run, high_watermark)


def _roll_to(log: Log, header: BatchHeader, now_ms: int) -> None:
    """Roll a segment for the next batch.

    The base offset of the new segment is the log end offset, even if compaction on the leader has removed the records
    between the log end offset and the batch: recovery would take a gap between two segments for lost records. If the
    batch's offset is too far above the log end offset for an index entry, the log is synced, and the base offset is the
    batch's offset. If the previous active segment is empty, it is deleted.
    """
    active = log.segments.active
    if header.last_offset - log.log_end_offset > RELATIVE_OFFSET_MAX:
        log.skip_to(header.base_offset)
    log.roll(now_ms)
    if active.size_bytes == 0 and log.segments.active is not active:
        delete_segments(log, [active], now_ms)


STRICT_SINCE: Final = 2
"""The first transaction.version whose transactions have their own epochs (KIP-890)."""
EPOCH_MAX: Final = 2**15 - 1
"""The highest possible producer epoch.

A marker with this epoch need not have a higher epoch than the producer, because there is no higher one.
"""


def append_marker(log: Log, marker: Marker, transaction_version: int, leader_epoch: int, now_ms: int) -> int:
    """Append a transaction marker, and return its offset. Raises StorageError.

    Raises ApiError before any change if the leader epoch, producer epoch or coordinator epoch is too old.
    """
    check_marker(log.producers.producers.get(marker.producer_id), marker, transaction_version)
    log.epochs.check_may_begin(leader_epoch)
    batch, offset = encode_marker(marker, now_ms), log.log_end_offset
    assign_offset(batch, 0, offset, leader_epoch)
    append_as_follower(log, memoryview(batch), leader_epoch, log.high_watermark, now_ms)
    return offset


def check_marker(producer: Producer | None, marker: Marker, transaction_version: int) -> None:
    """Raise ApiError if the marker is invalid, or too old for the current state of its producer.

    An old marker must not end the producer's next transaction. With transaction.version 2, each transaction has an
    epoch of its own, so an old marker has an old epoch. A repetition of the last marker is accepted, because its
    transaction has already ended.
    """
    epoch = marker.producer_epoch
    if min(marker.producer_id, epoch) < 0:
        message = f"the marker has producer id {marker.producer_id} and epoch {epoch}; both must be at least 0"
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if producer is None:
        return
    is_repeated = epoch == producer.epoch and (producer.transaction_first_offset < 0 or epoch == EPOCH_MAX)
    lowest = producer.epoch + 1 if transaction_version >= STRICT_SINCE and not is_repeated else producer.epoch
    if epoch < lowest:
        message = f"the marker has epoch {epoch} for producer {marker.producer_id}; the epoch must be at least {lowest}"
        raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if marker.coordinator_epoch < producer.coordinator_epoch:
        message = (
            f"the marker has coordinator epoch {marker.coordinator_epoch}, but the latest coordinator "
            f"epoch is {producer.coordinator_epoch}"
        )
        raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
