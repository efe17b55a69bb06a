"""Syncs of logs in tests."""

from barnabas_broker.storage.logs.log import Log


def flush_below(log: Log, end: int) -> None:
    """Block until everything below `end` is synced."""
    job = log.syncs.flush_job(end)
    if job:
        job.run()
        log.syncs.flushed(job, log.log_end_offset)
