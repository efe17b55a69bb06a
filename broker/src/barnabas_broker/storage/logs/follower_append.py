"""The append of the batches that a follower has fetched. Batches stay unchanged; one write appends many of them."""

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.fetched_batches import AppendPosition, fetched_batches, has_gap
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.retention import delete_segments
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at
from barnabas_broker.storage.segments.segment_indexes import RELATIVE_OFFSET_MAX
from barnabas_broker.wire.record_batch import LENGTH_OFFSET, BatchHeader


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
