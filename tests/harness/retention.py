"""Retention of logs in tests."""

from barnabas_broker.storage.logs import truncation
from barnabas_broker.storage.logs.log import Log


def enforce_retention(log: Log, now_ms: int, high_watermark: int) -> int:
    """Delete the segments that exceed retention where the high watermark is known."""
    log.commit_to(high_watermark)
    return truncation.enforce_retention(log, now_ms)
