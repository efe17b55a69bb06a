"""A topic of which partitions are on this broker."""

from uuid import UUID

from barnabas_broker.replication.partition import Partition
from barnabas_core.config.log_config import LogConfig


class HostedTopic:
    """One topic with its settings and those of its partitions that are here, by number."""

    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, Partition] = {}
