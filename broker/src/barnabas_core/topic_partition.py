"""The topic name and number of a partition."""

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A topic name and a partition number; the text is `flights-3`, like the name of the partition's directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
