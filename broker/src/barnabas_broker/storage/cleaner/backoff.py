"""The partitions whose compaction failed, and the time of each retry (KAFKA-19895)."""

from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition

FIRST_MS_MIN: Final = 1000
PAUSE_MS_MAX: Final = 15 * 60 * 1000


class FailedPartition(NamedTuple):
    """A partition whose compaction failed `attempts` times in a row; the next attempt is at `retry_ms` (epoch time)."""

    attempts: int
    reason: str
    retry_ms: int
    log_dir: str
    dirty_bytes: int


class Backoff:
    """The partitions whose compaction failed, and the pause before the retry of each."""

    def __init__(self) -> None:
        self.failed: dict[TopicPartition, FailedPartition] = {}
        self.failures_total = 0

    def may_try(self, topic_partition: TopicPartition, now_ms: int) -> bool:
        """True if the last compaction of the partition did not fail, or if the time of the retry has come."""
        failed = self.failed.get(topic_partition)
        return failed is None or now_ms >= failed.retry_ms

    def failure(
        self, topic_partition: TopicPartition, reason: str, log_dir: str, dirty_bytes: int, first_ms: int, now_ms: int
    ) -> FailedPartition:
        """Record a failed compaction; return the number of failures in a row and the time of the retry.

        The pause before the retry doubles with each failure in a row, from `first_ms` (at least 1 s) to 15 minutes.
        """
        earlier = self.failed.get(topic_partition)
        attempts = earlier.attempts + 1 if earlier else 1
        pause_ms = min(max(first_ms, FIRST_MS_MIN) << min(attempts - 1, 20), PAUSE_MS_MAX)
        failed = FailedPartition(attempts, reason, now_ms + pause_ms, log_dir, dirty_bytes)
        self.failed[topic_partition] = failed
        self.failures_total += 1
        return failed

    def success(self, topic_partition: TopicPartition) -> None:
        """Forget the failures of a partition that was compacted or deleted."""
        self.failed.pop(topic_partition, None)
