"""What this broker finds its logs to be, reported to the metadata until that shows that it has heard of it."""

import logging
from typing import Final

from barnabas_broker.metadata.controller.decisions.fencing import relies_on
from barnabas_broker.metadata.controller.decisions.overtaken import LogAhead
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_environment import is_ahead
from barnabas_broker.replication.replica_environment import ReplicaEnvironment
from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition

OTHERS_COME_S: Final = 30.0
"""So long a partition whose logs are ahead of the metadata waits for replicas that may have more."""

AHEAD: Final = (
    "the log of %s has records of leader epoch %d, and the metadata has %d: was an older copy restored? "
    "The partition has no leader until its epoch is above those of all logs"
)

log = logging.getLogger(__name__)


class LogReports:
    """Asked again and again, about once a second: by the chore that looks at disks."""

    def __init__(self, broker_id: int, environment: ReplicaEnvironment) -> None:
        self._broker_id = broker_id
        self._environment = environment
        self._ahead: dict[TopicPartition, tuple[Partition, float]] = {}
        """And since when, by the clock that nobody sets."""
        self._lost: dict[TopicPartition, int] = {}
        """What was said in the log to be lost, and in which leader epoch."""

    def has_lost(self, partition: Partition, loaded: Log) -> bool:
        """Whether a log that comes back lacks what was committed, and nobody else has it: then it does not lead."""
        state, committed = partition.state, partition.high_watermark
        if state.leader != self._broker_id or loaded.log_end_offset >= committed:
            return False
        where, end_offset = partition.topic_partition, loaded.log_end_offset
        self._say_lost(where, state, f"is back and ends at offset {end_offset}; all below {committed} was committed")
        return True

    def has_lost_with_dir(self, where: TopicPartition, state: PartitionState, found: Log | None) -> bool:
        """Whether the partition relies on a log that is gone, or whose log dir was away at the start and that may lack
        its end. `found` is None where it is gone: a new log would hide that. A log that is back after a power cut
        may lack its end."""
        if not relies_on(state, self._broker_id):
            return False
        cut = "is back with its log dir, and the machine was booted since it was written: it may lack records"
        gone = "is gone with the log dir that it was in, or is set aside (`barnabas status` names such logs)"
        self._say_lost(where, state, gone if found is None else cut)
        return True

    def _say_lost(self, where: TopicPartition, state: PartitionState, what: str) -> None:
        if self._lost.get(where) != state.leader_epoch:
            self._lost[where] = state.leader_epoch
            log.error("the log of %s %s", where, what)
        self._environment.lost({where: state.leader_epoch})

    def is_ahead(self, partition: Partition) -> bool:
        """Whether the log has a later epoch than the metadata: then it neither leads nor follows."""
        where, log_epoch, state = partition.topic_partition, partition.log.epochs.latest_epoch, partition.state
        if not is_ahead(partition.log, state):
            self._ahead.pop(where, None)
            return False
        now_s = self._environment.clock.monotonic_s()
        if where not in self._ahead:
            log.error(AHEAD, where, log_epoch, state.leader_epoch)
        _, since_s = self._ahead.setdefault(where, (partition, now_s))
        self._environment.ahead({where: LogAhead(log_epoch, now_s - since_s < OTHERS_COME_S)})
        return True

    def ahead(self) -> list[TopicPartition]:
        """Whose logs are ahead of the metadata, as far as is known."""
        return list(self._ahead)

    def forget(self, where: TopicPartition) -> None:
        """It is not here any more."""
        self._ahead.pop(where, None)
        self._lost.pop(where, None)
