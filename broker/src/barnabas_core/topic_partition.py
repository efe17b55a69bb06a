"""The partition of a topic, by the name or by the id of the topic."""

from typing import Final, NamedTuple
from uuid import UUID


class TopicPartition(NamedTuple):
    """A topic name and a partition number; the text is `flights-3`, like the name of the partition's directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A topic id and a partition number."""

    topic_id: UUID
    partition: int


LEADER_EPOCH_MAX: Final = 2**30
"""The largest valid epoch, below the 31 bits of Kafka's field; one election per second reaches it in 34 years."""
