"""The opening of a replica's log: the choice between an existing log, a new log, and no log for now."""

import logging
from typing import Final

from barnabas_broker.metadata.controller.decisions.fencing import relies_on
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_states import ReplicaRecord, ReplicaState, Trigger
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.kept_records import Kept
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError

log = logging.getLogger(__name__)

_NOT_FOUND: Final = (ReplicaState.AWAY, ReplicaState.DAMAGED, ReplicaState.LOST)
"""The states of a replica whose log exists or existed, but cannot be used."""


class LogOpening:
    """The opening of logs for replicas on this broker."""

    def __init__(self, broker_id: int, logs: LogManager) -> None:
        self._broker_id: Final = broker_id
        self._logs = logs

    def open(self, record: ReplicaRecord, state: PartitionState, config: LogConfig) -> tuple[Trigger, Log | None]:
        """Open or create the log of a replica.

        Return the event that changes the replica's state, and the log, or None if no log was found or created. No new
        log is created while the existing log may be in an offline log dir. A log that could not be used before, and may
        lack records, is not opened while the replica leads the partition or may be elected leader.
        """
        where, are_online = record.topic_partition, all(each.is_online for each in self._logs.log_dirs)
        found, is_known = self.claim(record), record.state in _NOT_FOUND
        if found is None and self._logs.damage_of(where) is not None:
            return Trigger.NOT_LOADED, None
        if found is None:
            is_known |= self._logs.strays.of(record.topic_id, where.partition) is not None
            if is_known and not are_online:
                return Trigger.NOT_FOUND, None
        if is_known and self._may_lack(found) and relies_on(state, self._broker_id):
            return Trigger.LACKING, found
        if found is not None:
            return Trigger.OPENED, found
        return self._make(record, state, config)

    def _may_lack(self, found: Log | None) -> bool:
        """True if records may be missing: no log was found, or the log may have lost records in a power cut."""
        return found is None or self._logs.kept(found) is not Kept.ALL

    def _make(self, record: ReplicaRecord, state: PartitionState, config: LogConfig) -> tuple[Trigger, Log | None]:
        log_dir = dict(zip(state.replicas, state.log_dirs, strict=False)).get(self._broker_id) or None
        try:
            return Trigger.OPENED, self._logs.create(record.topic_partition, record.topic_id, config, log_dir)
        except (ApiError, StorageError) as error:
            if record.state is not ReplicaState.REFUSED:
                log.error("the log of %s cannot be created: %s", record.topic_partition, error)
            return Trigger.NOT_MADE, None

    def claim(self, record: ReplicaRecord) -> Log | None:
        """Return the log with the replica's topic name, partition number and topic id, or None if there is none.

        The returned log is removed from the list of stray logs. If the name belongs to a log of another topic, the
        directory of that log is renamed to `-stray`.
        """
        try:
            found = self._logs.claim(record.topic_partition, record.topic_id)
        except StorageError as error:
            log.error(
                "%s: the log of another topic cannot be renamed to -stray, or the topic id cannot be written: %s",
                record.topic_partition,
                error,
            )
            return None
        if found is not None:
            self._logs.strays.forget(found)
        return found

    def load_again(self, record: ReplicaRecord, partition: Partition) -> Log | None:
        """Return the reloaded log of an offline replica, or None if the log cannot be reloaded.

        If the log no longer exists and no election relies on this replica, an empty log is created.
        """
        found, where = self.claim(record), record.topic_partition
        if found is not None:
            return found if found is not partition.log else None
        if relies_on(partition.state, self._broker_id) or not self._logs.has_lost(where):
            return None
        try:
            return self._logs.create(where, record.topic_id, partition.log.config)
        except (ApiError, StorageError) as error:
            log.error("the lost log of %s cannot be replaced by an empty log: %s", where, error)
            return None
