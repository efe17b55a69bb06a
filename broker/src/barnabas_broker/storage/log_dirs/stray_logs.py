"""Stray logs, which are not served because the metadata lacks their topics.

The broker keeps a stray log until the metadata decides about it: the log can be served if the metadata has the topic
again, and deleted if the metadata has a tombstone of the topic. If another log needs the directory's name, the stray
log is renamed to `-stray`. The broker never uses a renamed log again by itself:
`docs/explanation/storage-guarantees.md` says what to do.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import decode_epochs, decode_partition_metadata
from barnabas_broker.storage.errors import disk_errors, storage_error
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)
_DELETE_DELAY_MS: Final = 60_000
"""The delay before a stray log is deleted: the default of `file.delete.delay.ms`, as the topic's value is unknown."""


class StrayLog(NamedTuple):
    """A stray log. After a restart, its topic name comes from the directory name, which shortens long topic names."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    log_dir: str
    directory: str
    size_bytes: int


class StrayTotal(NamedTuple):
    """The number and total size of the stray logs in a log dir."""

    logs: int
    size_bytes: int


def marked_directory(environment: LogEnvironment, log_dir: str, topic_partition: TopicPartition, state: str) -> str:
    """Return a unique path for the renamed directory of a log; `state` is the suffix, such as `-stray`."""
    unique = kafka_uuid.random_uuid(environment.random.getrandbits)
    return f"{log_dir}/{checkpoints.marked_dir(topic_partition, unique, state)}"


class StrayLogs:
    """The stray logs of all log dirs. For an offline log dir, these are the logs that were found before it failed."""

    def __init__(self, environment: LogEnvironment, clock: Clock, log_dirs: Sequence[LogDir]) -> None:
        self._environment = environment
        self._clock = clock
        self._log_dirs = log_dirs
        self._by_directory: dict[str, StrayLog] = {}

    def __iter__(self) -> Iterator[StrayLog]:
        return iter(list(self._by_directory.values()))

    def __len__(self) -> int:
        return len(self._by_directory)

    def of(self, topic_id: UUID, number: int) -> StrayLog | None:
        """Return the stray log with a topic id and a partition number, or None."""
        return next((s for s in self if (s.topic_id, s.topic_partition.partition) == (topic_id, number)), None)

    def keep(self, log: Log, why: str) -> None:
        """Register a log as stray, without renaming its directory to `-stray`. The log is not served."""
        if log.directory not in self._by_directory:
            self._add(log)
            _logger.error("%s is kept, but not served: %s; `barnabas status` says what to do", log.directory, why)

    def forget(self, log: Log) -> None:
        """Forget a log that is served again or has been deleted."""
        self._by_directory.pop(log.directory, None)

    def set_aside(self, log: Log, why: str) -> None:
        """Rename a log's directory to `-stray`, and register the log as stray. Raises StorageError."""
        self.forget(log)
        log.move_to(marked_directory(self._environment, log.log_dir, log.topic_partition, checkpoints.STRAY_DIR))
        self._add(log)
        _logger.error(
            "%s is set aside and no longer served: %s; docs/explanation/storage-guarantees.md says what to do",
            log.directory,
            why,
        )

    def _add(self, log: Log) -> None:
        stray = StrayLog(log.topic_partition, log.topic_id, log.log_dir, log.directory, log.segments.size_bytes)
        self._by_directory[log.directory] = stray

    def damaged_id(self, log_dir: LogDir, topic_partition: TopicPartition) -> UUID | None:
        """Return the topic id of a log that could not be loaded, or None if the id is missing or damaged.

        Raises StorageError.
        """
        directory = f"{log_dir.path}/{topic_partition}"
        with disk_errors(log_dir.path, directory):
            return self._topic_id(directory)

    def damaged_epoch(self, log_dir: LogDir, topic_partition: TopicPartition) -> int | None:
        """Return the latest leader epoch of a log that could not be loaded; None without a readable checkpoint."""
        try:
            path = f"{log_dir.path}/{topic_partition}/{checkpoints.LEADER_EPOCHS}"
            return decode_epochs(self._environment.files.read(path))[-1].epoch
        except (OSError, ValueError, IndexError):
            return None

    def load(self, log_dir: str, names: Iterable[str]) -> None:
        """Replace the registered stray logs of a log dir by the `-stray` directories among `names`.

        Raises StorageError.
        """
        for stray in self:
            if stray.log_dir == log_dir:
                del self._by_directory[stray.directory]
        for name in names:
            parsed = checkpoints.parse_partition_dir(name)
            if parsed is not None and parsed.state == checkpoints.STRAY_DIR:
                self._load(log_dir, f"{log_dir}/{name}", parsed.topic_partition)

    def _load(self, log_dir: str, directory: str, topic_partition: TopicPartition) -> None:
        with disk_errors(log_dir, directory):
            size_bytes = sum(entry.size_bytes for entry in self._environment.files.scan(directory))
            stray = StrayLog(topic_partition, self._topic_id(directory), log_dir, directory, size_bytes)
        self._by_directory[directory] = stray

    def _topic_id(self, directory: str) -> UUID | None:
        try:
            return decode_partition_metadata(
                self._environment.files.read(f"{directory}/{checkpoints.PARTITION_METADATA}")
            )
        except (FileNotFoundError, ValueError):
            return None

    def delete(self, stray: StrayLog) -> None:
        """Schedule the deletion of a `-stray` directory whose topic was deleted. Raises StorageError.

        A directory in an offline log dir is only forgotten; it is found again when the log dir is online.
        """
        if self._is_online(stray.log_dir):
            directory = stray.directory.removesuffix(checkpoints.STRAY_DIR) + checkpoints.DELETED_DIR
            try:
                self._environment.files.rename(stray.directory, directory)
            except FileNotFoundError:
                _logger.info("%s: the directory has already been removed", stray.directory)
            except OSError as error:
                raise storage_error(stray.log_dir, stray.directory, error) from error
            else:
                self._environment.trash.add(directory, self._clock.now_ms() + _DELETE_DELAY_MS)
                _logger.info("%s: the topic was deleted, so the stray log is deleted", stray.directory)
        self._by_directory.pop(stray.directory, None)

    def _is_online(self, log_dir: str) -> bool:
        return any(each.path == log_dir and each.is_online for each in self._log_dirs)

    def totals(self) -> dict[str, StrayTotal]:
        """Return the number and size of stray logs for each log dir that has any."""
        totals: dict[str, StrayTotal] = {}
        for stray in self:
            before = totals.get(stray.log_dir, StrayTotal(0, 0))
            totals[stray.log_dir] = StrayTotal(before.logs + 1, before.size_bytes + stray.size_bytes)
        return totals
