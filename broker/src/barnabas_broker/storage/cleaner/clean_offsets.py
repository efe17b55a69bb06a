"""Up to where each log is compacted: kept in `cleaner-offset-checkpoint` of each log dir, in Kafka's format."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from barnabas_broker.storage import file_names
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.log_dir import LogDir
from barnabas_core.topic_partition import TopicPartition


class CleanOffsets:
    """By partition and topic id, so that a topic of the same name that came later begins anew."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[TopicPartition, UUID | None], int] = {}
        self._read: set[str] = set()

    def read(self, log_dirs: Iterable[LogDir]) -> None:
        """Take over the checkpoints of directories that have not been met yet. Not of a disk that fails."""
        for log_dir in log_dirs:
            if log_dir.is_online and log_dir.path not in self._read:
                self._read.add(log_dir.path)
                with suppress(StorageError):
                    self._take(log_dir)

    def _take(self, log_dir: LogDir) -> None:
        for topic_partition, offset in log_dir.offsets(file_names.CLEAN_OFFSETS).items():
            log = log_dir.logs.get(topic_partition)
            if log is not None:
                self._offsets[topic_partition, log.topic_id] = offset

    def of(self, log: Log) -> int | None:
        """None for a log that was never compacted."""
        return self._offsets.get((log.topic_partition, log.topic_id))

    def set(self, log: Log, offset: int) -> None:
        """The log is compacted up to here."""
        self._offsets[log.topic_partition, log.topic_id] = offset

    def checkpoint_call(self, log_dir: LogDir) -> Callable[[], None]:
        """The write of one directory's checkpoint as it is now, for a thread. It raises OSError."""
        offsets = {key: offset for key, log in log_dir.logs.items() if (offset := self.of(log)) is not None}
        return log_dir.checkpoint_call(file_names.CLEAN_OFFSETS, offsets)
