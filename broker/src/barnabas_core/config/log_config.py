"""The effective settings of one topic's logs, with units in their names. Frozen: a change is a new value.

`topic_configs.effective_log_config` makes them; `storage` reads them. The defaults are Kafka 4's.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from barnabas_core.config.throttled_replicas import ThrottledReplicas

LONG_MAX: Final = 2**63 - 1
NOTHING_THROTTLED: Final = ThrottledReplicas()


class Compression(Enum):
    """The compression of stored batches: PRODUCER leaves them as the producer made them, any other one recompresses."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class CleanupPolicy(Enum):
    """The policy for old segments."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampType(Enum):
    """The source of the records' time: the producer or the broker."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """One topic's settings. A comment gives the topic config's name if the field's name differs from it."""

    segment_bytes: int = 1024**3
    roll_ms: int = 168 * 3600 * 1000  # segment.ms
    roll_jitter_ms: int = 0  # segment.jitter.ms
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024**2  # segment.index.bytes
    retention_ms: int = 168 * 3600 * 1000  # -1: for ever
    retention_bytes: int = -1  # -1: no limit
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    message_bytes_max: int = 1_048_588  # max.message.bytes: a whole batch with its header
    decompressed_message_bytes_max: int = 2**31 - 9  # max.decompressed.message.bytes: a batch's records, decompressed
    compression: Compression = Compression.PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    cleanup_policies: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = 3_600_000
    min_insync_replicas: int = 1
    leader_throttled_replicas: ThrottledReplicas = NOTHING_THROTTLED
    follower_throttled_replicas: ThrottledReplicas = NOTHING_THROTTLED

    @property
    def compacted(self) -> bool:
        """True if the newest value of every key stays: then every record needs a key."""
        return CleanupPolicy.COMPACT in self.cleanup_policies

    @property
    def deletes(self) -> bool:
        """True if retention by time and size removes old segments."""
        return CleanupPolicy.DELETE in self.cleanup_policies
