"""The persister stores and reads the state of share-partitions at their share coordinators, on this or other brokers.

A group coordinator initializes, deletes and summarizes the state of its share groups. The leader of a share-partition
reads the state when it begins, and writes it with each change.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    WriteEntry,
)
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

Outcomes = Mapping[TopicIdPartition, ShareOutcome]
OnOutcomes = Callable[[Outcomes], object]


class SharePersister:
    """The persister of this broker.

    Each method calls `answer` once, with an outcome for each share-partition of the request, perhaps before the method
    returns. Passing errors are retried: five tries, with pauses of 1 s to 30 s. An error that remains is one of
    COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION,
    NETWORK_EXCEPTION and REQUEST_TIMED_OUT; FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST and
    UNKNOWN_SERVER_ERROR are never retried.
    """

    def initialize(self, group_id: str, entries: Sequence[InitializeEntry], answer: OnOutcomes) -> None:
        """Store the state epoch and start offset of share-partitions, which forgets their earlier state."""
        self._refuse(group_id, (entry.partition for entry in entries), answer)

    def read(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read the state of share-partitions as their leader, and fence leaders with a lower leader epoch."""
        self._refuse(group_id, (entry.partition for entry in entries), answer)

    def write(self, group_id: str, entries: Sequence[WriteEntry], answer: OnOutcomes) -> None:
        """Store changed batches of share-partitions as their leader."""
        self._refuse(group_id, (entry.partition for entry in entries), answer)

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition], answer: OnOutcomes) -> None:
        """Delete the state of share-partitions; NONE if they have none."""
        self._refuse(group_id, partitions, answer)

    def read_summary(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read the epochs, the start offset and the delivery complete count of share-partitions, without side effect.

        A leader epoch of -1 reads the state of any leader.
        """
        self._refuse(group_id, (entry.partition for entry in entries), answer)

    def _refuse(self, group_id: str, partitions: Iterable[TopicIdPartition], answer: OnOutcomes) -> None:
        message = f"the share coordinator of group {group_id} is not available"
        answer(dict.fromkeys(partitions, ShareOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)))
