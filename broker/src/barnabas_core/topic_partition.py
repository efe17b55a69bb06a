"""The partition of a topic, by the name or by the id of the topic."""

from typing import NamedTuple
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
