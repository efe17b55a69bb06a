"""Logs that the metadata does not know: nothing but a tombstone deletes a log.

They stay where they are, until the topic's document is back or its tombstone comes. One that is in the way of another
topic's log is set aside as a `-stray` directory.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import decode_epochs, decode_partition_metadata
from barnabas_broker.storage.errors import DiskFull, LogRemoved, StorageError, storage_error
from barnabas_broker.storage.log_dirs.interrupted_moves import LogCopy
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.logs.log_loader import LogPlace, open_log
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
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

    @property
    def is_in_place(self) -> bool:
        """True if it has not been renamed: the log manager has it among its logs."""
        return self.directory == f"{self.log_dir}/{self.topic_partition}"


class StrayTotal(NamedTuple):
    """The stray logs of one log dir: how many, and their bytes."""

    logs: int
    size_bytes: int


def marked_directory(environment: LogEnvironment, log_dir: str, topic_partition: TopicPartition, state: str) -> str:
    """A new name for the directory of a log."""
    unique = kafka_uuid.random_uuid(environment.random.getrandbits)
    return f"{log_dir}/{file_names.marked_dir(topic_partition, unique, state)}"


class StrayLogs:
    """Those of all log dirs; who iterates sees only those that can be used, of log dirs that are online.

    `assigned` says which partition here a topic id and a number are.
    """

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
        self._out_of_sight: dict[str, StrayLog] = {}
        """Those of log dirs that are offline, as they were seen last."""
        self._wanted: dict[str, TopicPartition] = {}

    def __iter__(self) -> Iterator[StrayLog]:
        return iter(list(self._by_directory.values()))

    def known(self) -> list[StrayLog]:
        """Also those of log dirs that are offline: they are there for all that is known."""
        return list({**self._out_of_sight, **self._by_directory}.values())

    def keep(self, log: Log, why: str) -> None:
        """Note a log that stays where it is, and that nobody uses."""
        if log.directory not in self._by_directory:
            self._by_directory[log.directory] = StrayLog(
                log.topic_partition, log.topic_id, log.log_dir, log.directory, log.size_bytes, log
            )
            _logger.error("%s is not served, and kept: %s; `barnabas status` says what to do", log.directory, why)

    def forget(self, log: Log) -> None:
        """The log is used now, or it goes."""
        self._by_directory.pop(log.directory, None)

    def set_aside(self, log: Log, why: str) -> None:
        """Rename a log that its log dir forgets. StorageError."""
        self.forget(log)
        log.move_to(marked_directory(self._environment, log.log_dir, log.topic_partition, file_names.STRAY_DIR))
        self._by_directory[log.directory] = StrayLog(
            log.topic_partition, log.topic_id, log.log_dir, log.directory, log.size_bytes, log
        )
        _logger.error("%s is set aside, and kept: %s; `barnabas status` says what to do", log.directory, why)

    def set_aside_damaged(self, log_dir: LogDir, topic_partition: TopicPartition, topic_id: UUID) -> bool:
        """Rename the directory of a log that could not be loaded, if it is of another topic than this. StorageError."""
        found_id = self.damaged_id(log_dir, topic_partition)
        if found_id in (None, topic_id):
            return False
        stray = marked_directory(self._environment, log_dir.path, topic_partition, file_names.STRAY_DIR)
        size_bytes = log_dir.rename_damaged(topic_partition, stray)
        self._by_directory[stray] = StrayLog(topic_partition, found_id, log_dir.path, stray, size_bytes)
        _logger.error("%s is set aside: it is damaged, and of another topic of that name", stray)
        return True

    def set_aside_copy(self, copy: LogCopy) -> None:
        """The only copy that is left of a log, if nobody has removed it. StorageError; it may be tried again."""
        files = self._environment.files
        try:
            if files.exists(copy.directory):
                files.rename(copy.directory, copy.stray_directory)
            elif not files.exists(copy.stray_directory):
                _logger.error("%s is gone: somebody has removed it", copy.directory)
                return
        except OSError as error:
            raise storage_error(copy.log_dir, copy.directory, error) from error
        self.load(copy.log_dir, copy.stray_directory.rsplit("/", 1)[1], copy.topic_partition, lambda _: False)

    def damaged_id(self, log_dir: LogDir, topic_partition: TopicPartition) -> UUID | None:
        """Of a log that could not be loaded: its topic's id, None where that is damaged, too. StorageError."""
        directory = f"{log_dir.path}/{topic_partition}"
        try:
            return self._topic_id(directory)
        except OSError as error:
            raise storage_error(log_dir.path, directory, error) from error

    def damaged_epoch(self, log_dir: LogDir, topic_partition: TopicPartition) -> int | None:
        """Of a log that could not be loaded: its latest leader epoch, as far as its checkpoint tells that."""
        try:
            path = f"{log_dir.path}/{topic_partition}/{file_names.LEADER_EPOCHS}"
            return decode_epochs(self._environment.files.read(path))[-1].epoch
        except (OSError, ValueError, IndexError):
            return None

    def load(
        self,
        log_dir: str,
        name: str,
        topic_partition: TopicPartition,
        is_free: Callable[[TopicPartition], bool],
    ) -> list[TopicPartition]:
        """What an earlier incarnation of the broker, or Kafka, set aside: the partition, where its topic is back.

        Unless its place is not free. Raises StorageError.
        """
        files, directory = self._environment.files, f"{log_dir}/{name}"
        try:
            size_bytes = sum(entry.size_bytes for entry in files.scan(directory))
            stray = StrayLog(topic_partition, self._topic_id(directory), log_dir, directory, size_bytes)
            wanted = None if stray.topic_id is None else self._assigned(stray.topic_id, topic_partition.partition)
            if wanted is None or not is_free(wanted):
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
        """The log of this partition, also out of sight: of several the largest, for the others began after it."""
        found = [s for s in self.known() if s.topic_id == topic_id and s.topic_partition.partition == number]
        return max(found, key=lambda stray: stray.size_bytes, default=None)

    def take_back(self, topic_partition: TopicPartition, topic_id: UUID) -> Log | None:
        """A log that this process set aside, at its place again; one of an earlier process is wanted from now on."""
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
        """To be read in a thread, each; the log manager hears of what came of it. Not those whose topic went again."""
        for each in [each for each in self if each.directory in self._wanted]:
            if each.topic_id is None or self._assigned(each.topic_id, each.topic_partition.partition) is None:
                del self._wanted[each.directory]
        return [(each, self._wanted[each.directory]) for each in self if each.directory in self._wanted]

    def check_not_wanted(self, topic_partition: TopicPartition) -> None:
        """ApiError while one is to be read: it lies in the partition's place then, and nobody has it yet."""
        if topic_partition in self._wanted.values():
            message = f"a log of an earlier topic is being read in the place of {topic_partition}; try again"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def read(self, stray: StrayLog, topic_partition: TopicPartition) -> Log | StorageError:
        """The log, at its place again and checked from its beginning. For a thread: it changes nothing in memory.

        DiskFull where it still is a stray one, to be read again. LogRemoved: the next start knows nothing of it.
        """
        directory = f"{stray.log_dir}/{topic_partition}"
        config = self._config_of(topic_partition.topic)
        place = LogPlace(log_dir=stray.log_dir, directory=directory, topic_partition=topic_partition, config=config)
        try:
            try:
                self._environment.files.rename(stray.directory, directory)
            except FileNotFoundError:  # It may lie there already: a full disk has not let it back.
                if not self._environment.files.exists(directory):
                    return LogRemoved(stray.log_dir, f"{stray.directory} was removed")
            return open_log(self._environment, place, self._clock.now_ms())
        except OSError as error:
            return storage_error(stray.log_dir, stray.directory, error)
        except StorageError as error:
            if isinstance(error, DiskFull):
                with suppress(OSError):
                    self._environment.files.rename(directory, stray.directory)
            return error

    def use_again(self, log_dir: LogDir, log: Log) -> None:
        """It is at its place. That it has to be synced is forgotten.

        The checkpoints may have another of its name.
        """
        log_dir.logs[log.topic_partition] = log
        self._environment.unflushed[log.topic_partition] = None
        if log_dir.begin_log(log.topic_partition):
            log.await_checkpoint()
        if log.unsynced_from is not None:
            self._environment.sync_due(log)

    def remove(self, stray: StrayLog) -> None:
        """It is no stray any more."""
        self._by_directory.pop(stray.directory, None)
        self._wanted.pop(stray.directory, None)

    def delete(self, stray: StrayLog) -> None:
        """Somebody has said that its topic is deleted. Not one that is wanted, or no stray any more. StorageError."""
        self._out_of_sight.pop(stray.directory, None)  # Its log dir tells of it when it is back.
        if stray.directory not in self._by_directory or stray.directory in self._wanted:
            return
        directory = stray.directory.removesuffix(file_names.STRAY_DIR) + file_names.DELETED_DIR
        try:
            self._environment.files.rename(stray.directory, directory)
        except FileNotFoundError:  # Somebody was faster.
            self.remove(stray)
            return
        except OSError as error:
            raise storage_error(stray.log_dir, stray.directory, error) from error
        self.remove(stray)
        self._environment.trash.add(directory, self._clock.now_ms() + _DELETE_DELAY_MS)
        _logger.info("%s: its topic was deleted; deleting it", stray.directory)

    def dir_failed(self, log_dir: str) -> None:
        """A directory that went offline is read again when it is back; what is in it is known until then."""
        for stray in self:
            if stray.log_dir == log_dir:
                self._out_of_sight[stray.directory] = stray._replace(log=None)
                self.remove(stray)

    def dir_is_back(self, log_dir: str) -> None:
        """It has been read: only what was found in it counts."""
        for stray in list(self._out_of_sight.values()):
            if stray.log_dir == log_dir:
                self._out_of_sight.pop(stray.directory, None)

    def logs_in(self, log_dir: str) -> list[Log]:
        """Those of a log dir that this process renamed: some of what is in them may not be on the disk yet.

        Not those that somebody has removed. StorageError.
        """
        strays = [stray for stray in self if stray.log_dir == log_dir and not stray.is_in_place]
        logs = [stray.log for stray in strays if stray.log is not None]
        try:
            return [log for log in logs if self._environment.files.exists(log.directory)]
        except OSError as error:
            raise storage_error(log_dir, log_dir, error) from error

    def totals(self) -> dict[str, StrayTotal]:
        """Of those that are known, by log dir; log dirs without any are left out."""
        totals: dict[str, StrayTotal] = {}
        for stray in self.known():
            before = totals.get(stray.log_dir, StrayTotal(0, 0))
            totals[stray.log_dir] = StrayTotal(before.logs + 1, before.size_bytes + stray.size_bytes)
        return totals
