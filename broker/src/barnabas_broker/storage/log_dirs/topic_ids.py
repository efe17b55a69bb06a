"""The topic ids of logs (`partition.metadata`): a later topic of the same name must not take a log.

A sync for each new log would block the loop. So a thread syncs the ids about a second later, or the log's first flush
does. A power cut before that loses the id: then the log's name tells the topic, if only one topic can have had that
name. On a full disk the id is written once there is room.
"""

import logging
from collections.abc import Callable
from typing import Final
from uuid import UUID
from weakref import WeakSet

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import encode_partition_metadata
from barnabas_broker.storage.errors import DiskFull, storage_error
from barnabas_broker.storage.logs.log import Log

_logger: Final = logging.getLogger(__name__)


class TopicIds:
    """`only_topic` gives the id of the topic of a name, None where an earlier one had that name, or there is none."""

    def __init__(self, only_topic: Callable[[str], UUID | None]) -> None:
        self._only_topic = only_topic
        self._unsynced: dict[Log, None] = {}
        self._unwritten: WeakSet[Log] = WeakSet()
        """A full disk did not take their ids."""

    def give(self, log: Log, topic_id: UUID) -> None:
        """Give a topic id to a new log. Raises StorageError."""
        _write(log, topic_id)
        log.belongs_to(topic_id)
        self._unsynced[log] = None

    def give_again(self, log: Log, topic_id: UUID) -> None:
        """Give its topic id to a log from before a start, which a power cut may have taken.

        StorageError unless it is DiskFull.
        """
        if log.topic_id == topic_id:
            return
        try:
            self.give(log, topic_id)
        except DiskFull as error:
            _logger.warning("%s: its topic id is written once the disk has space: %s", log.directory, error)
            log.belongs_to(topic_id)
            self._unwritten.add(log)
            self.sync_later(log)

    def find(self, log: Log) -> bool:
        """Give a log that has lost its id the one that it had; False where that is not known. StorageError."""
        topic_id = self._only_topic(log.topic_partition.topic)
        if topic_id is not None:
            self.give_again(log, topic_id)
        return topic_id is not None

    def sync_later(self, log: Log) -> None:
        """`take_unsynced` shall give this log, again if it did before."""
        self._unsynced[log] = None

    def take_unsynced(self, log_dir: str) -> list[Log]:
        """The logs of a log dir whose topic ids must be synced (`sync_call`)."""
        unsynced = [log for log in self._unsynced if log.log_dir == log_dir]
        for log in unsynced:
            del self._unsynced[log]
        return unsynced

    def sync_call(self, log: Log) -> Callable[[], None]:
        """Return the call with which a thread puts the id of a log on the disk.

        This method and the call raise StorageError; after DiskFull the id waits for room.
        """
        if log in self._unwritten and log.topic_id is not None:
            _write(log, log.topic_id)
            self._unwritten.discard(log)
        return _sync_call(log)


def _write(log: Log, topic_id: UUID) -> None:
    try:
        log.files.write_atomically(_path(log), encode_partition_metadata(topic_id), sync=False)
    except OSError as error:
        raise storage_error(log.log_dir, log.directory, error) from error


def _sync_call(log: Log) -> Callable[[], None]:
    files, log_dir, directory = log.files, log.log_dir, log.directory
    try:
        file = files.open_existing(_path(log))
    except OSError as error:
        raise storage_error(log_dir, directory, error) from error

    def sync() -> None:
        try:
            file.sync()
            files.sync_dir(directory)
        except OSError as error:
            raise storage_error(log_dir, directory, error) from error

    return sync


def _path(log: Log) -> str:
    return f"{log.directory}/{file_names.PARTITION_METADATA}"
