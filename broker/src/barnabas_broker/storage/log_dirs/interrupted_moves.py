"""The completion of moves between log dirs that a stop of the broker interrupted."""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.errors import disk_errors
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


def finish_interrupted_moves(
    environment: LogEnvironment, log_dir: str, names: Iterable[str], log_dirs: Sequence[str]
) -> dict[TopicPartition, str]:
    """Finish the interrupted moves to a log dir; return each partition to move again, with the path of the log dir.

    All log dirs must be online, because an offline log dir does not show which logs it has. Raises StorageError.
    """
    resumed: dict[TopicPartition, str] = {}
    for name in names:
        parsed = file_names.parse_partition_dir(name)
        if parsed and parsed.state == file_names.FUTURE_DIR:
            directory = f"{log_dir}/{name}"
            with disk_errors(log_dir, directory):
                if _is_resumed(environment, parsed.topic_partition, directory, log_dirs):
                    resumed[parsed.topic_partition] = log_dir
    return resumed


def _is_resumed(
    environment: LogEnvironment, topic_partition: TopicPartition, copy: str, log_dirs: Sequence[str]
) -> bool:
    """Finish an interrupted move; return True if the log has to be moved again.

    If the original log still exists, the copy is deleted and the log has to be moved again. Otherwise a complete copy
    becomes the log, and an incomplete copy is renamed to `-stray`, because it must not count as the log.
    """
    files = environment.files
    if any(files.exists(f"{each}/{topic_partition}") for each in log_dirs):
        environment.trash.add(copy, 0)
        return True
    if files.exists(f"{copy}/{file_names.LEADER_EPOCHS}"):  # A move writes this file last, so the copy is complete.
        files.rename(copy, f"{copy.rpartition('/')[0]}/{topic_partition}")
    else:
        stray = copy.removesuffix(file_names.FUTURE_DIR) + file_names.STRAY_DIR
        files.rename(copy, stray)
        _logger.error("an unfinished copy of a log that no longer exists was renamed to %s", stray)
    return False
