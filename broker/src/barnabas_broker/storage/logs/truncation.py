"""The truncation of a follower's log where the leader has other records."""

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log


@disk_access
def truncate_to(log: Log, offset: int) -> None:
    """Truncate the log to `offset`. Raises StorageError.

    Epochs without records are dropped, too, because a leader may have begun an epoch and written nothing. A log that is
    truncated within its compacted section is emptied. Compaction has removed older values of keys whose newer values
    are truncated, so the follower must fetch the older values from the leader again.
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
