"""The clean shutdown of many logs."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.logs.log import Log

CLOSED_TOGETHER: Final = 32
"""The number of logs that are synced at the same time in a shutdown; each has up to six open files."""


def close_logs(logs: Sequence[Log]) -> None:
    """Close logs, several at a time, because the disk merges concurrent syncs."""
    with ThreadPoolExecutor(CLOSED_TOGETHER) as threads:
        for start in range(0, len(logs), CLOSED_TOGETHER):
            some = logs[start : start + CLOSED_TOGETHER]
            jobs = [job for log in some if (job := log.closing_job())]
            for _ in threads.map(FlushJob.run, jobs):
                pass
            for log in some:
                log.closed()
