"""What a start makes of the copies of logs that were on their way to another log dir."""

import logging
from collections.abc import Sequence
from typing import Final

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


def finish_interrupted_moves(
    environment: LogEnvironment, names: Sequence[tuple[str, str]]
) -> dict[TopicPartition, str]:
    """Of the directories `names` in the log dirs. A whole copy whose log is gone was being swapped in.

    With its log still there it goes: the result says where the log was on its way to. One that is not whole has lost
    its log with a disk that somebody has replaced, and must not pass for it: it is set aside. OSError.
    """
    parsed = [(log_dir, name, file_names.parse_partition_dir(name)) for log_dir, name in names]
    present = {found.topic_partition for _, _, found in parsed if found and not found.state}
    interrupted = {}
    for log_dir, name, found in parsed:
        if found and found.state == file_names.FUTURE_DIR:
            directory = f"{log_dir}/{name}"
            if found.topic_partition in present:
                interrupted[found.topic_partition] = log_dir
                environment.trash.add(directory, 0)
            elif environment.files.exists(f"{directory}/{file_names.LEADER_EPOCHS}"):  # What a swap copies last.
                environment.files.rename(directory, f"{log_dir}/{found.topic_partition}")
            else:
                set_aside = directory.removesuffix(file_names.FUTURE_DIR) + file_names.STRAY_DIR
                environment.files.rename(directory, set_aside)
                _logger.error("%s is set aside: it is an unfinished copy of a log, and the log is gone", set_aside)
    return interrupted
