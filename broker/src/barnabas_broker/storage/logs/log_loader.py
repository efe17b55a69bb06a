"""The loading of a log from disk, which finishes interrupted operations and recovers unsynced data.

After a clean shutdown only the directory is read, and the log's end is the recovery point. After a crash the batches
above the recovery point are checked, and the log is truncated before the first invalid batch.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import ProducerSnapshots, decode_partition_metadata
from barnabas_broker.storage.disk.files import FileEntry, FlushJob
from barnabas_broker.storage.errors import DiskFull, disk_access, disk_errors
from barnabas_broker.storage.logs.log import Log, LogOffsets
from barnabas_broker.storage.logs.log_history import FoundEpoch
from barnabas_broker.storage.logs.log_syncs import TOUCHED_BY_NO_ONE, LogEnvironment, LogPlace
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at
from barnabas_broker.storage.segments.segment import Segment, SegmentSizes
from barnabas_broker.storage.segments.segments import finish_interrupted_swap, listed_segments

_logger: Final = logging.getLogger(__name__)


def open_log(
    environment: LogEnvironment, place: LogPlace, now_ms: int, on_recovered: Callable[[int], None] = lambda _: None
) -> Log:
    """Load the log in the directory of `place`, or create a new log there. Raises StorageError.

    `on_recovered` is called after the check of each segment, with the number of checked bytes.
    """
    with disk_errors(place.log_dir, place.directory):
        return _load(environment, place, now_ms, on_recovered)


def _load(environment: LogEnvironment, place: LogPlace, now_ms: int, on_recovered: Callable[[int], None]) -> Log:
    entries = finish_interrupted_swap(environment.files, place.directory)
    segments, snapshot_offsets = listed_segments(environment, place.directory, place.config, entries)
    snapshots = ProducerSnapshots(environment.files, place.directory, snapshot_offsets)
    is_new, has_earlier, after_crash = not segments, _has_earlier(place), place.clean_shutdown_ns is None
    if is_new:
        segments = [_first_segment(environment, place, now_ms)]
        place = replace(place, log_start_offset=0, recovery_point=0, clean_shutdown_ns=TOUCHED_BY_NO_ONE)
    log = _as_after_clean_shutdown(environment, place, segments, snapshots, _topic_id(environment, place, entries))
    if after_crash and entries:
        log.syncs.after_crash()
    if is_new and has_earlier:
        log.await_checkpoint()
    if place.recovery_point is None or not _untouched_since(place.clean_shutdown_ns, entries):
        _recover(log, place.recovery_point or 0, on_recovered)
        if place.has_failed:
            _rewrite(log)
        _sync_as_asked(log)
    else:
        log.epochs.load(log.log_start_offset, log.log_end_offset, log.segments)
        if not log.known_producers.are_held_back:
            log.known_producers.load(log.log_start_offset, log.log_end_offset)
    for segment in log.segments:
        segment.make_missing_indexes()
    log.known_producers.rebuild_damaged_indexes(log.log_start_offset)
    if log.log_end_offset < place.log_start_offset:
        _logger.warning(
            "%s ends at offset %d, below its log start offset %d: the log is emptied and restarts at its start offset",
            place.directory,
            log.log_end_offset,
            place.log_start_offset,
        )
        truncate_fully_and_start_at(log, place.log_start_offset, now_ms)
    if place.config.compacted:
        log.compaction.superseded_below(_superseded_until(log, place))
    return log


def _has_earlier(place: LogPlace) -> bool:
    return any((place.recovery_point, place.log_start_offset, place.high_watermark))


def _superseded_until(log: Log, place: LogPlace) -> int:
    """Return the offset below which an interrupted compaction may have removed superseded records.

    Compaction removes a record only if a newer record of its key is below the checkpointed high watermark. If the log
    is later truncated below the returned offset, the newer records may be lost, too, so the log is emptied and fetched
    again. This never happens to an in-sync replica.
    """
    active_base = log.segments.active.base_offset
    return active_base if place.high_watermark is None else min(place.high_watermark, log.log_end_offset)


def _first_segment(environment: LogEnvironment, place: LogPlace, now_ms: int) -> Segment:
    """Return a segment at offset 0 for a log without files.

    The segment's files are created at the first append, because many partitions stay empty. The checkpointed offsets
    are not used: they belong to an earlier log with the same name, or a power failure has lost the files. A log that
    begins at a checkpointed offset would count as having all earlier records.
    """
    return Segment(environment, place.directory, 0, place.config, SegmentSizes(0, None, None, now_ms))


def _as_after_clean_shutdown(
    environment: LogEnvironment,
    place: LogPlace,
    segments: list[Segment],
    snapshots: ProducerSnapshots,
    topic_id: UUID | None,
) -> Log:
    """Return the log with its recovery point at its end, as after a clean shutdown."""
    end = max(place.recovery_point or 0, segments[-1].base_offset)
    offsets = LogOffsets(max(place.log_start_offset, segments[0].base_offset), end, end)
    return Log(environment, place, segments, snapshots, offsets, topic_id)


def _untouched_since(clean_shutdown_ns: int | None, entries: Sequence[FileEntry]) -> bool:
    """True if there was a clean shutdown, and no `.log` file was changed after it, for example by hand."""
    return clean_shutdown_ns is not None and all(
        entry.modified_ns <= clean_shutdown_ns for entry in entries if entry.name.endswith(checkpoints.LOG)
    )


def _topic_id(environment: LogEnvironment, place: LogPlace, entries: Sequence[FileEntry]) -> UUID | None:
    if not any(entry.name == checkpoints.PARTITION_METADATA for entry in entries):
        return None
    path = f"{place.directory}/{checkpoints.PARTITION_METADATA}"
    try:
        return decode_partition_metadata(environment.files.read(path))
    except ValueError as error:
        _logger.warning("the file %s is ignored because it cannot be read: %s", path, error)
        return None


def _recover(log: Log, recovery_point: int, on_recovered: Callable[[int], None]) -> None:
    """Check the batches above the recovery point; truncate the log before the first invalid or missing batch.

    Each segment must begin at the offset at which the previous segment ends. If the previous segment ends earlier, a
    crash has lost its last pages, and all later segments are dropped.
    """
    unsynced, end_offset = log.segments.starting_at(recovery_point), log.log_end_offset
    epochs: list[FoundEpoch] = []
    for number, segment in enumerate(unsynced):
        if number and not _follows(segment, end_offset):
            _warn_of_loss(f"the log has a gap at offset {end_offset}", unsynced[number:])
            log.discard_above(unsynced[number - 1].base_offset)
            break
        found_bytes, checked_bytes = segment.size_bytes, 0
        end_offset = segment.base_offset
        for header in segment.recover(recovery_point):
            checked_bytes += header.size_bytes
            if header.base_offset >= recovery_point and (not epochs or epochs[-1].epoch != header.leader_epoch):
                start_min = max(end_offset, recovery_point)
                epochs.append(FoundEpoch(header.leader_epoch, start_min, header.base_offset))
            end_offset = header.last_offset + 1
        on_recovered(checked_bytes)
        if segment.size_bytes < found_bytes:
            _warn_of_cut(segment, found_bytes - segment.size_bytes, unsynced[number + 1 :])
            log.discard_above(segment.base_offset)
            break
    log.recovered(recovery_point, end_offset, epochs)


def _follows(segment: Segment, end_offset: int) -> bool:
    return segment.base_offset == end_offset


def _rewrite(log: Log) -> None:
    """Write all unsynced data again.

    After a failed sync, the kernel counts the lost pages as written, so another sync would skip them.
    """
    recovery_point = log.syncs.recovery_point
    for segment in log.segments.starting_at(recovery_point):
        found = segment.find(recovery_point)
        if found:
            segment.file.rewrite(found.position)


def _sync_as_asked(log: Log) -> None:
    """Sync the records that a crash has left unsynced, if the log must sync records before it acknowledges them.

    Without this sync, the broker would acknowledge unsynced records: as a follower with the offset of its next Fetch
    request, or as a leader if a producer retries a batch. If the disk is full, the next append syncs the records.
    """
    if log.log_end_offset >= log.syncs.due_at:
        with suppress(DiskFull):
            log.flush()


def _warn_of_cut(segment: Segment, cut_bytes: int, dropped: Sequence[Segment]) -> None:
    path = segment.path(checkpoints.LOG)
    _logger.warning("%s: the last %d bytes were cut off because they are not complete, valid batches", path, cut_bytes)
    _warn_of_loss("the previous segment was truncated", dropped)


def _warn_of_loss(why: str, dropped: Sequence[Segment]) -> None:
    for lost in dropped:
        _logger.warning("the segment %s was dropped because %s", lost.path(checkpoints.LOG), why)


CLOSED_TOGETHER: Final = 32
"""The number of logs that are synced at the same time in a shutdown; each has up to six open files."""


def close_logs(logs: Sequence[Log]) -> None:
    """Sync logs and close their files, several at a time, because the disk merges concurrent syncs."""
    with ThreadPoolExecutor(CLOSED_TOGETHER) as threads:
        for start in range(0, len(logs), CLOSED_TOGETHER):
            some = logs[start : start + CLOSED_TOGETHER]
            jobs = [job for log in some if (job := _closing_job(log))]
            for _ in threads.map(FlushJob.run, jobs):
                pass
            for log in some:
                log.syncs.all_synced(log.log_end_offset)
                log.segments.close_files()


@disk_access
def _closing_job(log: Log) -> FlushJob | None:
    """Write the index entries and a producer snapshot; return a job that syncs the log, or None if all is synced."""
    write_pending(log)
    return log.syncs.closing_job(log.log_end_offset)


@disk_access
def write_pending(log: Log) -> None:
    """Write the pending index entries, and a snapshot of the producers at the log's end."""
    log.known_producers.write_snapshot(log.log_end_offset)
    log.segments.active.seal()
