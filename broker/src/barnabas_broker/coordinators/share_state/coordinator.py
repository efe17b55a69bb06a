"""The share coordinator of one broker, which passes each request to the shard of the share-partition.

The coordinator's `runtime` knows the partitions of `__share_group_state` that this broker leads. All calls come from
the event-loop thread, and none of them blocks.
"""

from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

from barnabas_broker.coordinators.runtime.shard import Runtime, RuntimeEnvironment
from barnabas_broker.coordinators.share_state.shard import OnOutcome, ShareStateEnvironment, ShareStateShard
from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    WriteEntry,
)
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicIdPartition


class ShareCoordinator:
    """The coordinator of the share-partitions whose partition of __share_group_state this broker leads.

    Each method calls `answer` with the outcome for one share-partition, perhaps before the method returns.
    """

    def __init__(
        self, environment: ShareStateEnvironment, of_runtime: RuntimeEnvironment, partition_count: int
    ) -> None:
        self._config = environment.config
        self.counts = environment.counts
        self.runtime = Runtime(
            of_runtime, partition_count, partial(ShareStateShard, environment), ShareStateShard.serve
        )

    def start(self) -> None:
        """Schedule the snapshots of cold share-partitions, and the pruning of the topic."""
        cold_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        prune_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        self.runtime.sweep_every(cold_ms / 1000, ShareStateShard.snapshot_cold)
        self.runtime.sweep_every(prune_ms / 1000, ShareStateShard.prune)

    def on_topics_deleted(self, topics: Collection[UUID]) -> None:
        """Delete the states of topics that were deleted."""
        self.runtime.sweep(lambda shard: shard.forget(topics))

    def initialize(self, group_id: str, entry: InitializeEntry, answer: OnOutcome) -> None:
        """Store the state epoch and start offset of a share-partition, which forgets its earlier state."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.initialize(key, entry, answer), answer)

    def read(self, group_id: str, entry: ReadEntry, answer: OnOutcome) -> None:
        """Read the state of a share-partition for its leader, and fence leaders with a lower leader epoch."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.read(key, entry, answer), answer)

    def write(self, group_id: str, entry: WriteEntry, answer: OnOutcome) -> None:
        """Store changed batches of a share-partition."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.write(key, entry, answer), answer)

    def delete(self, group_id: str, partition: TopicIdPartition, answer: OnOutcome) -> None:
        """Delete the state of a share-partition."""
        self._ask(group_id, partition, lambda shard, key: shard.delete(key, answer), answer)

    def read_summary(self, group_id: str, partition: TopicIdPartition, answer: OnOutcome) -> None:
        """Read the epochs, the start offset and the delivery complete count of a share-partition."""
        self._ask(group_id, partition, lambda shard, key: answer(shard.summary(key)), answer)

    def _ask(
        self,
        group_id: str,
        partition: TopicIdPartition,
        ask: Callable[[ShareStateShard, SharePartitionKey], object],
        answer: OnOutcome,
    ) -> None:
        key = SharePartitionKey(group_id, *partition)
        try:
            shard = self.runtime.find(key.name)
        except ApiError as error:
            answer(ShareOutcome(error.code, error.message))
        else:
            ask(shard, key)
