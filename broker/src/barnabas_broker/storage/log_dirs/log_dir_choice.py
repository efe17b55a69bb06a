"""The choice of a log dir for a new log."""

from collections.abc import Sequence
from typing import Final

from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.log_dir_placement import choose_log_dir
from barnabas_core.topic_partition import TopicPartition

WISHES_MAX: Final = 100_000


class LogDirChoice:
    """The choice of a log dir for a new log: by a client's preference (KIP-113), or else by `log.dirs.placement`.

    Preferences are kept in memory only, as in Kafka. When there are too many, the oldest preferences are dropped,
    because some of the replicas may never be created.
    """

    def __init__(self, log_dirs: Sequence[LogDir], clock: Clock, placement: str, headroom_bytes: int) -> None:
        self._log_dirs = log_dirs
        self._clock = clock
        self._placement = placement
        self._headroom_bytes = headroom_bytes
        self._wishes: dict[TopicPartition, str] = {}

    def at(self, path: str) -> LogDir:
        """Return the log dir at a path. Raises ApiError: LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        for log_dir in self._log_dirs:
            if log_dir.path == path:
                if log_dir.failure is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(log_dir.failure))
                return log_dir
        allowed = ", ".join(log_dir.path for log_dir in self._log_dirs)
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"log dir {path} is unknown; the broker has the log dirs {allowed}")

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Set or replace the preferred log dir of a partition. Raises ApiError if the log dir is unknown or offline."""
        wanted = self.at(path).path
        self.forget(topic_partition)
        self._wishes[topic_partition] = wanted
        if len(self._wishes) > WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget the preferred log dir of a partition, if the partition has one."""
        self._wishes.pop(topic_partition, None)

    def choose(self, topic_partition: TopicPartition) -> LogDir:
        """Return the preferred log dir if it is online, or else the log dir that `log.dirs.placement` selects.

        Forgets the preferred log dir in both cases. Raises ApiError if no log dir is online.
        """
        online = [log_dir for log_dir in self._log_dirs if log_dir.is_online]
        wished = self._wishes.pop(topic_partition, None)
        for log_dir in online:
            if log_dir.path == wished or len(online) == 1:
                return log_dir
        now_ms = self._clock.now_ms()
        loads = [log_dir.load(now_ms) for log_dir in online]
        return self.at(choose_log_dir(self._placement, loads, self._headroom_bytes))
