"""The clean shutdown of logs."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log

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
