"""The wiring of log compaction and of the inspection of produced batches, with a helper process for each.

Each process is started on first use. There are two, because producers must not wait for a long compaction.
"""

import asyncio
from collections.abc import Callable

from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.stable_offset import last_stable_offset
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.helper.helper import Helper
from barnabas_broker.storage.inspection.inspector import BatchInspector
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition

NOTHING_STABLE = -1
BATCH_MEMORY_BYTES = 768 * 1024 * 1024
"""The bytes of memory that a helper process needs besides its key map, mainly for the records of the largest batch."""


def make_inspector(timers: Timers, clock: Clock) -> BatchInspector:
    """Make the inspector of produced batches; the first batch that must be inspected starts its helper process."""
    return BatchInspector(Helper(timers, lambda: BATCH_MEMORY_BYTES), clock, asyncio.timeout)


def make_helper(timers: Timers, config: Callable[[], BrokerConfig]) -> Helper:
    """Make the helper process for compaction; `config` returns the current settings."""
    return Helper(timers, lambda: config().log_cleaner_dedupe_buffer_size + BATCH_MEMORY_BYTES)


def make_cleaner(
    logs: LogManager,
    replicas: ReplicaManager,
    helper: Helper,
    timers: Timers,
    clock: Clock,
    config: Callable[[], BrokerConfig],
) -> LogCleaner:
    """Make the cleaner of all logs; `config` returns the current settings.

    The cleaner compacts no record at or above the last stable offset or the high watermark in the checkpoint file.
    After a crash, the checkpoint file therefore tells which segments compaction may have replaced: only segments below
    the high watermark in the file.
    """

    def stable_offset(topic_partition: TopicPartition) -> int:
        try:
            partition = replicas.lookup.find(topic_partition.topic, None, topic_partition.partition)
            stable_offset = NOTHING_STABLE if partition.failure is not None else last_stable_offset(partition.log)
        except (ApiError, StorageError):  # The topic is being created or deleted, or its log has failed.
            return NOTHING_STABLE
        return min(stable_offset, logs.checkpointed_high_watermark(topic_partition))

    return LogCleaner(logs, helper, timers, clock, config, stable_offset, replicas.failures.log_failed)
