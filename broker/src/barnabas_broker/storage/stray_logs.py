"""Logs that the metadata does not know, set aside as `-stray` directories: nothing but a tombstone deletes a log.

They keep their disk space until the topic's document is back, its tombstone comes, or somebody removes them.
"""

import logging
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.storage import file_names
from barnabas_broker.storage.checkpoints import decode_partition_metadata
from barnabas_broker.storage.errors import StorageError, storage_error
from barnabas_broker.storage.log import Log
from barnabas_broker.storage.log_dir import LogDir
from barnabas_broker.storage.log_environment import LogEnvironment
from barnabas_broker.storage.log_loader import LogPlace, open_log
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)
_DELETE_DELAY_MS: Final = 60_000
"""As `file.delete.delay.ms`; the topic whose setting it would be is gone."""


class StrayLog(NamedTuple):
    """One of them. `log` is it where this process set it aside; the name of a long topic is cut."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    log_dir: str
    directory: str
    size_bytes: int
    log: Log | None = None


class StrayTotal(NamedTuple):
    """The stray logs of one log dir: how many, and their bytes."""

    logs: int
    size_bytes: int


def marked_directory(environment: LogEnvironment, log_dir: str, topic_partition: TopicPartition, state: str) -> str:
    """A new name for the directory of a log."""
    unique = kafka_uuid.random_uuid(environment.random.getrandbits)
    return f"{log_dir}/{file_names.marked_dir(topic_partition, unique, state)}"


class StrayLogs:
    """Those of all log dirs that are online. `assigned` says which partition here a topic id and a number are."""

    def __init__(
        self,
        environment: LogEnvironment,
        clock: Clock,
        config_of: Callable[[str], LogConfig],
        assigned: Callable[[UUID, int], TopicPartition | None],
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._config_of = config_of
        self._assigned = assigned
        self._by_directory: dict[str, StrayLog] = {}
        self._wanted: dict[str, TopicPartition] = {}

    def __iter__(self) -> Iterator[StrayLog]:
        return iter(list(self._by_directory.values()))

    def set_aside(self, log: Log, why: str) -> None:
        """Rename a log that its log dir forgets. StorageError."""
        log.move_to(marked_directory(self._environment, log.log_dir, log.topic_partition, file_names.STRAY_DIR))
        self._by_directory[log.directory] = StrayLog(
            log.topic_partition, log.topic_id, log.log_dir, log.directory, log.size_bytes, log
        )
        _logger.error("%s is set aside, and kept: %s; `barnabas status` says what to do", log.directory, why)

    def set_aside_damaged(self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Rename the directory of a log that could not be loaded, if it is of another topic than this. StorageError."""
        found_id = self._topic_id(f"{log_dir.path}/{topic_partition}")
        if found_id in (None, topic_id):
            return False
        stray = marked_directory(self._environment, log_dir.path, topic_partition, file_names.STRAY_DIR)
        size_bytes = log_dir.rename_damaged(topic_partition, stray)
        self._by_directory[stray] = StrayLog(topic_partition, found_id, log_dir.path, stray, size_bytes)
        _logger.error("%s is set aside: it is damaged, and of another topic of that name", stray)
        return True

    def load(
        self, log_dir: str, name: str, topic_partition: TopicPartition, log_dirs: Iterable[str]
    ) -> list[TopicPartition]:
        """What an earlier life of the broker, or Kafka, set aside: the partition, where its topic is back.

        Unless there is another log at its place in one of `log_dirs`. Raises StorageError.
        """
        files, directory = self._environment.files, f"{log_dir}/{name}"
        try:
            size_bytes = sum(entry.size_bytes for entry in files.scan(directory))
            stray = StrayLog(topic_partition, self._topic_id(directory), log_dir, directory, size_bytes)
            wanted = None if stray.topic_id is None else self._assigned(stray.topic_id, topic_partition.partition)
            if wanted is None or any(files.exists(f"{each}/{wanted}") for each in log_dirs):
                self._by_directory[directory] = stray
                return []
            files.rename(directory, f"{log_dir}/{wanted}")
        except OSError as error:
            raise storage_error(log_dir, directory, error) from error
        _logger.warning("%s is used again: its topic is back", directory)
        return [wanted]

    def _topic_id(self, directory: str) -> UUID | None:
        try:
            return decode_partition_metadata(
                self._environment.files.read(f"{directory}/{file_names.PARTITION_METADATA}")
            )
        except (FileNotFoundError, ValueError):
            return None

    def find(self, topic_id: UUID, number: int) -> StrayLog | None:
        """The log of this partition: of several the largest, for the others began after it."""
        found = [s for s in self if s.topic_id == topic_id and s.topic_partition.partition == number]
        return max(found, key=lambda stray: stray.size_bytes, default=None)

    def take_back(self, topic_partition: TopicPartition, topic_id: UUID) -> Log | None:
        """A log that this process set aside, at its place again; one of an earlier life is wanted from now on."""
        stray = self.find(topic_id, topic_partition.partition)
        if stray is None:
            return None
        if stray.log is None:
            self._wanted[stray.directory] = topic_partition
            return None
        stray.log.move_to(f"{stray.log_dir}/{topic_partition}")
        self.remove(stray)
        _logger.warning("%s is used again: its topic is back", stray.directory)
        return stray.log

    def wanted_logs(self) -> list[tuple[StrayLog, TopicPartition]]:
        """To be read in a thread, each; the log manager hears of what came of it."""
        return [(each, self._wanted[each.directory]) for each in self if each.directory in self._wanted]

    def read(self, stray: StrayLog, topic_partition: TopicPartition) -> Log | StorageError:
        """The log, at its place again and checked from its beginning. For a thread: it changes nothing in memory."""
        directory = f"{stray.log_dir}/{topic_partition}"
        config = self._config_of(topic_partition.topic)
        place = LogPlace(log_dir=stray.log_dir, directory=directory, topic_partition=topic_partition, config=config)
        try:
            self._environment.files.rename(stray.directory, directory)
            return open_log(self._environment, place, self._clock.now_ms())
        except OSError as error:
            return storage_error(stray.log_dir, stray.directory, error)
        except StorageError as error:
            return error

    def remove(self, stray: StrayLog) -> None:
        """It is no stray any more."""
        self._by_directory.pop(stray.directory, None)
        self._wanted.pop(stray.directory, None)

    def delete(self, topic_ids: Container[UUID | None]) -> None:
        """Those of topics of which somebody has said that they are deleted. Raises StorageError."""
        for stray in [each for each in self if each.topic_id in topic_ids and each.directory not in self._wanted]:
            directory = stray.directory.removesuffix(file_names.STRAY_DIR) + file_names.DELETED_DIR
            try:
                self._environment.files.rename(stray.directory, directory)
            except OSError as error:
                raise storage_error(stray.log_dir, stray.directory, error) from error
            self.remove(stray)
            self._environment.trash.add(directory, self._clock.now_ms() + _DELETE_DELAY_MS)
            _logger.info("%s: its topic was deleted; deleting it", stray.directory)

    def forget_dir(self, log_dir: str) -> None:
        """A directory that went offline is read again when it is back."""
        for stray in self:
            if stray.log_dir == log_dir:
                self.remove(stray)

    def totals(self) -> dict[str, StrayTotal]:
        """By log dir; those without any are left out."""
        totals: dict[str, StrayTotal] = {}
        for stray in self:
            before = totals.get(stray.log_dir, StrayTotal(0, 0))
            totals[stray.log_dir] = StrayTotal(before.logs + 1, before.size_bytes + stray.size_bytes)
        return totals
