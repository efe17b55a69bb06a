"""The truncation of a follower's log to the offset at which it diverges from the leader's log."""

from collections.abc import Iterator
from contextlib import contextmanager

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log


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
