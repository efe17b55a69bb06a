"""The representation of a topic that has partitions on this broker."""

from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.config.log_config import LogConfig


class HostedTopic:
    """A topic with its settings, and its partitions on this broker by partition number."""

    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, Partition] = {}
