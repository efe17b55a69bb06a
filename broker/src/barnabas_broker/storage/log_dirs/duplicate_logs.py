"""The choice among logs of one partition in several log dirs, because only one log can be used.

A power failure may restore the directory of a deleted topic although another log dir already has the log of a newer
topic of that name, because the two directories are synced independently.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from uuid import UUID

from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition


def superfluous_logs(logs: Iterable[Log], assigned: Callable[[UUID, int], TopicPartition | None]) -> list[Log]:
    """Return the logs that must not be used, where several log dirs have a log of the same partition.

    The log to use is the log whose topic id is in the metadata or, if there is none, the longest log.
    """

    def worth(log: Log) -> tuple[bool, int]:
        partition = log.topic_partition
        is_known = log.topic_id is not None and assigned(log.topic_id, partition.partition) == partition
        return is_known, log.log_end_offset

    by_partition: dict[TopicPartition, list[Log]] = defaultdict(list)
    for log in logs:
        by_partition[log.topic_partition].append(log)
    return [log for several in by_partition.values() for log in sorted(several, key=worth)[:-1]]
