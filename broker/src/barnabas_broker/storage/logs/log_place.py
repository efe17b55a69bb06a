"""The log dir and the directory of a log."""

from dataclasses import dataclass
from typing import Final

from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

TOUCHED_BY_NO_ONE: Final = 2**63 - 1
"""The `clean_shutdown_ns` of a log that needs no recovery: a new log, or a copy that was synced completely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPlace:
    """The directory and settings of a log, and the log's values in the checkpoints of the log dir."""

    log_dir: str
    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    log_start_offset: int = 0
    recovery_point: int | None = None
    """The recovery point; None if the checkpoint does not have the log."""
    clean_shutdown_ns: int | None = None
    """The time at which the clean shutdown marker was written; None after a crash."""
    high_watermark: int | None = None
    """The high watermark; None if the checkpoint does not have the log."""
    is_promised: bool = False
    """True if the log is listed in the checkpoint of logs that acknowledge only synced records."""
    has_failed: bool = False
    """True if a sync in the log dir has failed. A later sync skips the failed pages, so the data must be rewritten."""
