"""The name of one partition."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """Topic name and partition number; written `flights-3`, as Kafka names the partition's directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
