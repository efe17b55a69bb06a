"""The effective settings of a topic's logs, as an immutable value with units in the names of fields.

`topic_configs.effective_log_config` creates the value, and `storage` reads it. The defaults are those of Kafka 4.
"""

from enum import Enum
from typing import Final

import msgspec

LONG_MAX: Final = 2**63 - 1


class Compression(Enum):
    """The compression of stored batches: PRODUCER keeps batches as the producer sent them, other values recompress."""

    PRODUCER = "producer"
    UNCOMPRESSED = "uncompressed"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class CleanupPolicy(Enum):
    """A policy for old segments; `cleanup.policy` may list both policies."""

    DELETE = "delete"
    COMPACT = "compact"


class TimestampType(Enum):
    """The source of record timestamps: the producer or the broker."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


class ThrottledReplicas(msgspec.Struct, frozen=True):
    """The value of `leader.replication.throttled.replicas` or `follower.replication.throttled.replicas` of a topic."""

    all: bool = False
    replicas: frozenset[tuple[int, int]] = frozenset()
    """The pairs of a partition and a broker id."""

    def includes(self, partition: int, broker_id: int) -> bool:
        """True if the partition's replica on the broker is throttled."""
        return self.all or (partition, broker_id) in self.replicas


NOTHING_THROTTLED: Final = ThrottledReplicas()


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The effective settings of a topic. A comment names the setting where the field's name is not clear enough."""

    segment_bytes: int = 1024**3
    roll_ms: int = 168 * 3600 * 1000  # The setting is segment.ms.
    roll_jitter_ms: int = 0  # The setting is segment.jitter.ms.
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024**2  # The setting is segment.index.bytes.
    retention_ms: int = 168 * 3600 * 1000  # The value -1 means for ever.
    retention_bytes: int = -1  # The value -1 means no limit.
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    message_bytes_max: int = 1_048_588  # The setting is max.message.bytes, the size of a batch with its header.
    decompressed_message_bytes_max: int = 2**31 - 9  # The setting is max.decompressed.message.bytes.
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
        """True if compaction keeps the newest value of each key, so that every record needs a key."""
        return CleanupPolicy.COMPACT in self.cleanup_policies

    @property
    def deletes(self) -> bool:
        """True if retention by time and size deletes old segments."""
        return CleanupPolicy.DELETE in self.cleanup_policies
