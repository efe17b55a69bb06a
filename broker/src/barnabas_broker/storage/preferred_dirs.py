"""Where logs that are still to be made were asked for."""

from typing import Final

from barnabas_core.topic_partition import TopicPartition

REMEMBERED_MAX: Final = 100_000


class PreferredDirs:
    """Paths of log dirs; of many wishes the newest, for who wishes may ask for what never comes."""

    def __init__(self) -> None:
        self._paths: dict[TopicPartition, str] = {}

    def put(self, topic_partition: TopicPartition, path: str) -> None:
        """The last wish counts."""
        self._paths.pop(topic_partition, None)
        self._paths[topic_partition] = path
        if len(self._paths) > REMEMBERED_MAX:
            del self._paths[next(iter(self._paths))]

    def take(self, topic_partition: TopicPartition) -> str | None:
        """The wish, which is fulfilled with this."""
        return self._paths.pop(topic_partition, None)
