"""The topic ids of logs (`partition.metadata`), which prevent a later topic of the same name from using a log.

A thread syncs the id of a new log about a second after the log is created, because a sync for each new log would block
the event loop. A flush of the log in the meantime syncs the id, too. If a power failure loses the id, the broker finds
the topic by its name, but only if no other topic can have had that name.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import encode_partition_metadata
from barnabas_broker.storage.errors import DiskFull, disk_access, disk_errors
from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


class TopicLookup(NamedTuple):
    """The functions that find the topic of a log in the metadata.

    `assigned` returns this broker's partition for a topic id and a partition number, or None. `only_topic` returns the
    id of the topic that has the given name now. It returns None if there is no such topic, or if a deleted topic with
    this name may still have logs.
    """

    assigned: Callable[[UUID, int], TopicPartition | None] = lambda *_: None
    only_topic: Callable[[str], UUID | None] = lambda _: None


NO_TOPICS: Final = TopicLookup()


class TopicIds:
    """The topic ids of logs."""

    def __init__(self, topics: TopicLookup) -> None:
        self._only_topic = topics.only_topic
        self._unsynced: dict[Log, None] = {}

    def give(self, log: Log, topic_id: UUID) -> None:
        """Write the topic id of a new log to `partition.metadata`, and schedule a sync of the file.

        Raises StorageError.
        """
        _write(log, topic_id)
        log.belongs_to(topic_id)
        self._unsynced[log] = None

    def give_again(self, log: Log, topic_id: UUID) -> None:
        """Assign the topic id to an existing log, whose id a power failure may have lost.

        On a full disk the id is not written, so the next start has to find it again. Raises StorageError if the disk
        fails.
        """
        if log.topic_id == topic_id:
            return
        try:
            self.give(log, topic_id)
        except DiskFull as error:
            _logger.warning("%s: the topic id cannot be written: %s", log.directory, error)
            log.belongs_to(topic_id)

    def find(self, log: Log) -> bool:
        """Restore the lost topic id of a log by the topic's name; return False if the id is unknown.

        Raises StorageError.
        """
        topic_id = self._only_topic(log.topic_partition.topic)
        if topic_id is not None:
            self.give_again(log, topic_id)
        return topic_id is not None

    def sync_later(self, log: Log) -> None:
        """Schedule a sync of the log's topic id, even if the id was synced before."""
        self._unsynced[log] = None

    def take_unsynced(self, log_dir: str) -> list[Log]:
        """Cancel the scheduled syncs of topic ids in a log dir, and return the logs whose topic ids were to be synced.

        The caller syncs the topic ids with `sync_call`.
        """
        unsynced = [log for log in self._unsynced if log.log_dir == log_dir]
        for log in unsynced:
            del self._unsynced[log]
        return unsynced


@disk_access
def _write(log: Log, topic_id: UUID) -> None:
    log.files.write_atomically(_path(log), encode_partition_metadata(topic_id), sync=False)


@disk_access
def sync_call(log: Log) -> Callable[[], None]:
    """Return a function that syncs the topic id file of a log; the caller runs it in a thread.

    Both this function and the returned one raise StorageError.
    """
    files, log_dir, directory = log.files, log.log_dir, log.directory
    file = files.open_existing(_path(log))

    def sync() -> None:
        with disk_errors(log_dir, directory):
            file.sync()
            files.sync_dir(directory)

    return sync


def _path(log: Log) -> str:
    return f"{log.directory}/{file_names.PARTITION_METADATA}"
