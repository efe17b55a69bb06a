"""What becomes of copies of logs that were on their way to another log dir when the broker ended."""

import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.errors import storage_error
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


class _Copy(NamedTuple):
    """A `-future` directory."""

    topic_partition: TopicPartition
    log_dir: str
    directory: str


class InterruptedMoves:
    """A start finishes them once it has read the names in all log dirs, before anything moves there.

    While a log dir is away nobody knows which logs are gone, so copies wait for a start that finds all log dirs.
    """

    def __init__(self, environment: LogEnvironment) -> None:
        self.to_resume: dict[TopicPartition, str] = {}
        """Where logs were on their way to when the broker ended: to be started again."""
        self._environment = environment
        self._copies: list[_Copy] = []
        self._present: set[TopicPartition] = set()

    def found(self, log_dir: str, names: Iterable[str]) -> None:
        """Take note of the directories in a log dir."""
        for name in names:
            parsed = file_names.parse_partition_dir(name)
            if parsed and parsed.state == file_names.FUTURE_DIR:
                self._copies.append(_Copy(parsed.topic_partition, log_dir, f"{log_dir}/{name}"))
            elif parsed and not parsed.state:
                self._present.add(parsed.topic_partition)

    def finish(self, log_dir: str) -> None:
        """The copies in this log dir. A whole one whose log is gone was being swapped in.

        With its log still there it goes, and the move is to be resumed. One that is not whole has lost its log with a
        disk that somebody has replaced, and must not pass for it: it is set aside. StorageError.
        """
        for copy in [each for each in self._copies if each.log_dir == log_dir]:
            try:
                self._finish(copy)
            except OSError as error:
                raise storage_error(log_dir, copy.directory, error) from error

    def _finish(self, copy: _Copy) -> None:
        files, topic_partition = self._environment.files, copy.topic_partition
        if topic_partition in self._present:
            self.to_resume[topic_partition] = copy.log_dir
            self._environment.trash.add(copy.directory, 0)
        elif files.exists(f"{copy.directory}/{file_names.LEADER_EPOCHS}"):  # What a swap copies last.
            files.rename(copy.directory, f"{copy.log_dir}/{topic_partition}")
            self._present.add(topic_partition)
        else:
            stray = copy.directory.removesuffix(file_names.FUTURE_DIR) + file_names.STRAY_DIR
            files.rename(copy.directory, stray)
            _logger.error("%s is set aside: it is an unfinished copy of a log that is gone", stray)
