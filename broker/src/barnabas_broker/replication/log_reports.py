"""The reports to the controller about lost logs, and about logs ahead of the metadata.

A report is repeated until the metadata reflects it.
"""

import logging
from typing import Final

from barnabas_broker.metadata.controller.decisions.overtaken import LogAhead
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_environment import is_ahead
from barnabas_broker.replication.replica_environment import ReplicaEnvironment
from barnabas_broker.replication.replica_states import ReplicaRecord, ReplicaState, ReplicaStates, Trigger
from barnabas_broker.storage.logs.log import Log

OTHERS_COME_S: Final = 30.0
"""The time in seconds after which a partition gets a leader even if some of its replicas are down.

Until then, a partition with a log ahead of the metadata has no leader, because replicas that are down may have more
records.
"""

AHEAD: Final = (
    "the log of %s has records of leader epoch %d, but the metadata has only leader epoch %d, probably because an "
    "older copy of the metadata was restored. The partition has no leader until the controller has raised the leader "
    "epoch in the metadata above those in all logs"
)
GONE: Final = (
    "the log is missing: its log dir is gone, or the log was renamed to -stray (`barnabas status` lists stray logs)"
)
CUT: Final = "the log is available again, but may lack records, because the machine was rebooted after the last write"

log = logging.getLogger(__name__)


class LogReports:
    """The reports to the controller about logs that are lost, may lack records, or are ahead of the metadata."""

    def __init__(self, broker_id: int, environment: ReplicaEnvironment, states: ReplicaStates) -> None:
        self._broker_id = broker_id
        self._environment = environment
        self._states = states

    def lacks_committed(self, record: ReplicaRecord, partition: Partition, loaded: Log) -> bool:
        """Report a reloaded log as lost if this broker leads the partition and the log lacks committed records.

        Return True if the log was reported.
        """
        state, end_offset, committed = partition.state, loaded.log_end_offset, partition.log.high_watermark
        if state.leader != self._broker_id or end_offset >= committed:
            return False
        lost = f"the reloaded log ends at offset {end_offset}, but all records below {committed} were committed"
        self.lost(record, state.leader_epoch, lost)
        return True

    def lost(self, record: ReplicaRecord, leader_epoch: int, what: str) -> None:
        """Report that the log of a leader, or of a replica that may be elected leader, may lack records.

        The report has no effect once the partition has another leader epoch than `leader_epoch`.
        """
        if record.state is not ReplicaState.LOST:
            log.error("%s: %s", record.topic_partition, what)
        self._states.change(record, Trigger.LACKING)
        self._environment.lost({record.topic_partition: leader_epoch})

    def is_ahead(self, record: ReplicaRecord, partition: Partition) -> bool:
        """Report a log that has a later leader epoch than the metadata; return True if the log was reported.

        A replica whose log is ahead of the metadata neither leads nor follows. Once the metadata has reached the leader
        epoch of the log, the replica is online again.
        """
        where, log_epoch, state = record.topic_partition, partition.log.epochs.latest_epoch, partition.state
        was_ahead, now_s = record.state is ReplicaState.AHEAD, self._environment.clock.monotonic_s()
        if not is_ahead(partition.log, state):
            if was_ahead:
                self._states.change(record, Trigger.OVERTAKEN)
            return False
        if not was_ahead:
            log.error(AHEAD, where, log_epoch, state.leader_epoch)
            self._states.change(record, Trigger.OVERTOOK)
            record.ahead_since_s = now_s
        self._environment.ahead({where: LogAhead(log_epoch, now_s - record.ahead_since_s < OTHERS_COME_S)})
        return True
