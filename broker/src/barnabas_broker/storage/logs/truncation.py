"""Cuts the end of a follower's log off where its leader has other data."""

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log


@disk_access
def truncate_to(log: Log, offset: int) -> None:
    """Drop everything at `offset` and above. StorageError.

    Drop epochs without records, too: a leader may have begun one and written nothing. A log that is cut within what was
    compacted starts again from nothing: compaction has removed older values for newer ones that are cut now, and the
    leader has these older values.
    """
    if offset >= log.log_end_offset:
        log.epochs.truncate_from_end(log.log_end_offset)
        log.load_epochs()
    elif offset < log.segments.first.base_offset:
        log.truncate_fully_and_start_at(offset, 0)
    elif offset < log.compaction.until:
        log.truncate_fully_and_start_at(min(offset, log.log_start_offset), 0)
    else:
        log.cut(offset)
