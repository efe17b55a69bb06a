"""What a start makes of the copies of logs that were on their way to another log dir."""

from collections.abc import Sequence

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.topic_partition import TopicPartition


def finish_interrupted_moves(
    environment: LogEnvironment, names: Sequence[tuple[str, str]]
) -> dict[TopicPartition, str]:
    """Of the directories `names` in the log dirs. A copy whose log is gone was being swapped in, so it is whole.

    With its log still there it is not, and goes: the result says where the log was on its way to. OSError.
    """
    parsed = [(log_dir, name, file_names.parse_partition_dir(name)) for log_dir, name in names]
    present = {found.topic_partition for _, _, found in parsed if found and not found.state}
    interrupted = {}
    for log_dir, name, found in parsed:
        if found and found.state == file_names.FUTURE_DIR:
            if found.topic_partition in present:
                interrupted[found.topic_partition] = log_dir
                environment.trash.add(f"{log_dir}/{name}", 0)
            else:
                environment.files.rename(f"{log_dir}/{name}", f"{log_dir}/{found.topic_partition}")
    return interrupted
