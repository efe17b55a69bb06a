"""The partitions on this broker, by topic name and by topic id."""

from collections.abc import Callable, Iterator
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.not_leader_errors import why_missing
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_states import ReplicaStates
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


class HostedTopic:
    """A topic with its settings, and its partitions on this broker by partition number."""

    __slots__ = ("config", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: UUID, config: LogConfig) -> None:
        self.name = name
        self.topic_id = topic_id
        self.config = config
        self.partitions: dict[int, Partition] = {}


class PartitionLookup:
    """The lookup of partitions.

    `is_awake` returns False after this process was suspended, until it knows again which brokers lead.
    """

    def __init__(
        self, broker_id: int, image: MetadataImage, states: ReplicaStates, is_awake: Callable[[], bool]
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._states = states
        self._is_awake = is_awake
        self.topics: dict[str, HostedTopic] = {}
        self._by_id: dict[bytes, HostedTopic] = {}
        """The topics by the bytes of their topic ids, because creating a UUID takes longer than the lookup."""

    def find(self, name: str | None, topic_id: bytes | None, index: int) -> Partition:
        """Return a partition by topic name or, without a name, by topic id.

        Raises ApiError if this broker does not have the partition. Raises ApiError also after this process was
        suspended, until it knows again which brokers lead.
        """
        if not self._is_awake():
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker was suspended, and is checking which brokers lead now"
            )
        try:
            topic = self.topics[name] if name is not None else self._by_id[topic_id]  # type: ignore[index]
            return topic.partitions[index]
        except KeyError:
            raise self._why_missing(name, topic_id, index) from None

    def _why_missing(self, name: str | None, topic_id: bytes | None, index: int) -> ApiError:
        if name is None and topic_id in self._by_id:
            name = self._by_id[topic_id].name
        is_unmade = name is not None and self._states.is_unmade(TopicPartition(name, index))
        uuid = None if topic_id is None else UUID(bytes=topic_id)
        return why_missing(self._image, self._broker_id, name, uuid, index, is_unmade=is_unmade)

    def hosted(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the partition, even if it is offline; None if this broker does not have the partition."""
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic is not None else None

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions on this broker, offline ones included."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def add(self, topic: HostedTopic) -> None:
        """Add a topic that has, or will have, partitions on this broker."""
        self.topics[topic.name] = self._by_id[topic.topic_id.bytes] = topic

    def remove(self, name: str) -> HostedTopic | None:
        """Remove and return a deleted topic, None if the topic had no partitions on this broker."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            del self._by_id[topic.topic_id.bytes]
        return topic
