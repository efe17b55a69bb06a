"""The manager of the replicas on this broker, which creates, configures, removes and reloads replicas.

The manager follows the metadata image, and reloads replicas when a failed disk is available again. The module
`replica_states` finds partitions for requests, and takes partitions offline.

The reports to the controller about lost logs, and about logs ahead of the metadata. A report is repeated until the
metadata reflects it.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_broker.metadata.controller.decisions.elections import LogAhead
from barnabas_broker.metadata.controller.decisions.fencing import counts_on, relies_on
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.replication.leader_replica import PartitionEnvironment, is_ahead
from barnabas_broker.replication.partition import CommitQueue, Partition
from barnabas_broker.replication.replica_states import (
    NOT_SERVED,
    WITHOUT_USABLE_LOG,
    HostedTopic,
    OfflinePartitions,
    PartitionLookup,
    ReplicaEnvironment,
    ReplicaRecord,
    ReplicaState,
    ReplicaStates,
    Trigger,
)
from barnabas_broker.replication.stray_log_policy import StrayLogPolicy
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_core.clock import monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import EffectiveLogConfig, effective_log_config
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import MADE_PARTITIONS, MADE_PARTITIONS_S, FairRounds, FairTurn, timed
from barnabas_core.topic_partition import TopicPartition, is_internal

log = logging.getLogger(__name__)

KEPT_MAX: Final = 1_000
"""The maximum number of sets of topic settings in the cache; most topics share a set with other topics."""


class TopicSettings:
    """The effective settings of topics, computed from the stored topic settings and the settings of the broker."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._kept: dict[tuple[tuple[str, str], ...], EffectiveLogConfig] = {}
        self._ignored: dict[str, tuple[ConfigProblem, ...]] = {}

    def under(self, broker: BrokerConfig) -> None:
        """Replace the settings of the broker."""
        self._broker = broker
        self._kept.clear()

    def of(self, topic: TopicDocument) -> EffectiveLogConfig:
        """Return the effective settings of a topic; log the ignored settings if they have changed."""
        effective = self._effective(topic.configs)
        if effective.ignored != self._ignored.get(topic.name, ()):
            self._log_problems(topic.name, effective.ignored)
        return effective

    def forget(self, topic: str) -> None:
        """Drop the list of the ignored settings of a deleted topic."""
        self._ignored.pop(topic, None)

    def ignored(self) -> Iterator[tuple[str, ConfigProblem]]:
        """Return the ignored settings of all topics, as pairs of topic name and problem."""
        return ((topic, problem) for topic, problems in self._ignored.items() for problem in problems)

    def _effective(self, configs: Mapping[str, str]) -> EffectiveLogConfig:
        key = tuple(configs.items())
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[key] = effective_log_config(configs, self._broker)
        return found

    def _log_problems(self, topic: str, problems: tuple[ConfigProblem, ...]) -> None:
        if problems:
            self._ignored[topic] = problems
            log.error("some settings of topic %s have no effect: %s", topic, "; ".join(map(str, problems)))
        else:
            self.forget(topic)


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


class ReplicaManager:
    """The manager that applies changes of the metadata image to the replicas on this broker."""

    def __init__(
        self,
        broker_id: int,
        config: BrokerConfig,
        logs: LogManager,
        image: MetadataImage,
        environment: ReplicaEnvironment,
    ) -> None:
        self._broker_id: Final = broker_id
        self._config = config
        self.settings: Final = TopicSettings(config)
        self._logs = logs
        self._image = image
        self._policy = StrayLogPolicy(broker_id, logs, image)
        self._opening = LogOpening(broker_id, logs)
        self._environment = environment
        self.states: Final = ReplicaStates()
        self._reports = LogReports(broker_id, environment, self.states)
        self._context = PartitionEnvironment(
            broker_id,
            environment.clock,
            self._is_eligible,
            lambda: self._config.replica_lag_time_max_ms,
            environment.propose_isr,
            self._own_broker_epoch,
            environment.turned_away,
        )
        self.lookup: Final = PartitionLookup(broker_id, image, self.states, environment.is_awake)
        clock, timers, states = environment.clock, environment.timers, self.states
        self.failures: Final = OfflinePartitions(
            self.lookup, states, logs, environment.fetching, environment.give_up, clock, timers
        )
        self._isr_checks = FairRounds(clock, timers, self.lookup.partitions, self._check_isr)
        self._configurations = FairRounds(clock, timers, lambda: list(image.topics), self._configure)
        self._returns = FairRounds(clock, timers, lambda: states.of(*NOT_SERVED), self._retry)
        self._removals = FairRounds(clock, timers, lambda: states.of(ReplicaState.GOING), self._remove)
        self._stray_deletions = FairRounds(clock, timers, self._policy.deleted_strays, self._policy.delete_stray)
        self._out_of_sync: dict[str, list[int]] = {}
        """The partitions by topic whose ISR lacks this broker's replica; a probe asks for them each second."""
        self._is_making = False
        """True if the next turn of the event loop will create partitions."""
        self._has_stopped = False

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """True if a broker may join an ISR: it is unfenced, not shutting down, and has this broker epoch (KIP-903)."""
        found = self._image.brokers.get(broker_id)
        return (
            found is not None and not found.fenced and not found.is_shutting_down and found.broker_epoch == broker_epoch
        )

    def _own_broker_epoch(self) -> int:
        found = self._image.brokers.get(self._broker_id)
        return -1 if found is None else found.broker_epoch

    def bring_back(self) -> None:
        """Check all replicas that are not served, some in each turn of the event loop.

        The check loads logs that are available again, creates logs that could not be created before, and repeats the
        reports about replicas that still cannot be served.
        """
        self._returns.begin()

    def _retry(self, record: ReplicaRecord) -> None:
        """Try to serve a replica, or report to the controller again that the replica cannot be served.

        Do nothing after `stop`, or if a newer `ReplicaRecord` has replaced `record`.
        """
        if self._has_stopped or self.states.get(record.topic_partition) is not record:
            return
        if record.partition is None:
            self._make(record)
        elif record.partition.failure is not None:
            self._reload(record.partition)
        else:
            self._reports.is_ahead(record, record.partition)

    def _reload(self, partition: Partition) -> None:
        """Report an offline partition to the controller; once the controller has handled the report, reload the log.

        The controller has handled the report if the leader epoch has risen, and this replica has left the ISR and the
        ELR. This replica may stay if the ISR and the ELR have no other replica.
        """
        topic_partition = partition.topic_partition
        if counts_on(partition.state, self._broker_id, partition.failed_epoch):
            self.failures.give_up({topic_partition: partition.failed_epoch})
            return
        record = self.states.hosted(topic_partition)
        loaded = self._opening.load_again(record, partition)
        if loaded is None and partition.state.leader == self._broker_id and self._logs.has_lost(topic_partition):
            self._reports.lost(record, partition.leader_epoch, GONE)
        elif loaded is not None and not self._reports.lacks_committed(record, partition, loaded):
            partition.come_back(loaded)
            self.states.change(record, Trigger.RETURNED)
            self._follow(partition)
            log.info("the replica of %s is online again", topic_partition)

    def offline(self) -> list[TopicPartition]:
        """Return the assigned partitions whose logs failed, or could not be found, loaded or created."""
        return [each.topic_partition for each in self.states.of(*WITHOUT_USABLE_LOG)]

    def out_of_sync(self) -> list[TopicPartition]:
        """Return the partitions that have a leader, and whose ISR lacks this broker's replica.

        Replicas that a reassignment is adding are left out.
        """
        return [TopicPartition(name, index) for name, indexes in self._out_of_sync.items() for index in indexes]

    def _assigned(self) -> Iterator[TopicPartition]:
        for document in self._image.topics.values():
            for index, state in enumerate(document.partitions):
                if self._broker_id in state.replicas:
                    yield TopicPartition(document.name, index)

    async def start(self) -> None:
        """Create the assigned partitions, follow changes of the image, and remove logs of unassigned partitions.

        The work is spread over many turns of the event loop.
        """
        are_online = all(each.is_online for each in self._logs.log_dirs)
        absent = set() if are_online else set(self._assigned()) - self._logs.logs.keys()
        topic_ids = {each.topic: self._image.topics[each.topic].topic_id for each in absent}
        turn = FairTurn(self._environment.clock)
        await self._policy.sweep(turn)
        self._image.subscribe(self._image_changed)
        for where in absent:
            document = self._image.topics.get(where.topic)
            if document is not None and document.topic_id == topic_ids[where.topic]:
                self.states.begin(where, document.topic_id, Trigger.ABSENT)
        async for name in turn.over(self._image.topics):
            if name in self._image.topics:
                self._host(self._image.topics[name])
        async for record in turn.over(self.states.of(*NOT_SERVED)):
            self._retry(record)
        while (unmade := self.states.first(ReplicaState.UNMADE)) is not None and not self._has_stopped:
            self._make(unmade)
            await turn.give_way()
        await self._policy.sweep(turn)  # Replicas may have been unassigned since the first sweep.

    async def sweep(self, *, is_due: bool = True) -> None:
        """Delete the logs of unassigned partitions, or keep them as stray logs, as `StrayLogPolicy` says.

        Do nothing unless `is_due` is True or an earlier deletion failed.
        """
        if is_due or self._policy.is_sweep_due:
            await self._policy.sweep(FairTurn(self._environment.clock))

    def stop(self) -> None:
        """Stop leading all partitions, and ignore later changes of the metadata.

        No batch can be appended afterwards, so the logs may be closed.
        """
        self._has_stopped = True
        self._removals.stop()
        self._stray_deletions.stop()
        self._returns.stop()
        going = [each.partition for each in self.states.of(ReplicaState.GOING) if each.partition is not None]
        for partition in (*self.lookup.partitions(), *going):
            partition.resign()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply new broker settings, and compute the effective settings of all topics again."""
        self._config = config
        self.settings.under(config)
        self._configurations.begin()

    def _configure(self, name: str) -> None:
        document = self._image.topics.get(name)
        if document is not None and not self._has_stopped:
            self._host(document)
            self._make_some()

    def _image_changed(self, change: ImageChange) -> None:
        if self._has_stopped:
            return
        if change.tombstones:
            self._stray_deletions.begin()
        for document in change.deleted:
            self._drop(document)
        for document in (*change.created, *change.changed):
            self._host(document)
        self._removals.begin()
        self._make_some()
        if change.brokers:
            self.check_isr()  # Without new records, only this check lets an unfenced follower join the ISR.

    def _host(self, document: TopicDocument) -> None:
        """Apply a topic's leaders and settings to its partitions; schedule the creation and removal of replicas."""
        config = self.settings.of(document).config
        topic = self.lookup.topics.get(document.name) or HostedTopic(document.name, document.topic_id, config)
        is_configured, topic.config = topic.config is config, config
        for index, state in enumerate(document.partitions):
            partition = topic.partitions.get(index)
            if self._broker_id not in state.replicas:
                self._unassign(TopicPartition(document.name, index))
            elif partition is not None:
                if not is_configured:
                    partition.configure(config)
                if partition.state is not state or partition.failure is not None:
                    self._take_over(partition, state)
            else:
                self._want(topic, index)
        behind = [index for index, state in enumerate(document.partitions) if self._is_behind(state)]
        if behind:
            self._out_of_sync[document.name] = behind
        else:
            self._out_of_sync.pop(document.name, None)

    def _is_behind(self, state: PartitionState) -> bool:
        if self._broker_id in state.isr or self._broker_id not in state.replicas or state.leader == NO_LEADER:
            return False
        return self._broker_id not in state.adding_replicas

    def _unassign(self, topic_partition: TopicPartition) -> None:
        """Remove a replica from the lookup, and schedule the removal of the replica's log."""
        record = self.states.get(topic_partition)
        if record is None:
            return
        if self.states.going(topic_partition) is not None:
            self.states.change(record, Trigger.FORGOTTEN)
            return
        self.states.change(record, Trigger.UNASSIGNED)
        topic = self.lookup.topics.get(topic_partition.topic)
        if topic is not None:
            topic.partitions.pop(topic_partition.partition, None)

    def _want(self, topic: HostedTopic, index: int) -> None:
        """Schedule the creation of a partition; create a partition of an internal topic at once."""
        self.lookup.add(topic)
        topic_partition = TopicPartition(topic.name, index)
        if self.states.get(topic_partition) is None:
            record = self.states.begin(topic_partition, topic.topic_id, Trigger.ASSIGNED)
            # Coordinators read the log of an internal topic in this turn of the event loop, so it is opened now.
            if is_internal(topic.name):
                self._make(record)

    def _make_some(self) -> None:
        """Create as many partitions as one turn of the event loop allows, unless `_make_next` is scheduled already."""
        if not self._is_making:
            self._make_next()

    @timed("making of partitions")
    def _make_next(self) -> None:
        turn = FairTurn(self._environment.clock, MADE_PARTITIONS, MADE_PARTITIONS_S)
        unmade = None
        while not self._has_stopped and (unmade := self.states.first(ReplicaState.UNMADE)) is not None and turn.take():
            self._make(unmade)
        self._is_making = unmade is not None
        if self._is_making:
            self._environment.timers.call_soon(self._make_next)

    def _make(self, record: ReplicaRecord) -> None:
        """Open or create the log of a replica, and lead or follow according to the metadata image.

        If the log cannot be used, this broker resigns as leader or ISR member of the partition.
        """
        where = record.topic_partition
        document, topic = self._image.topics.get(where.topic), self.lookup.topics.get(where.topic)
        if document is None or topic is None or where.partition >= len(document.partitions):
            self.states.change(record, Trigger.FORGOTTEN)
            return
        going = self.states.going(where)
        if going is not None:
            self._remove(going)
        state = document.partitions[where.partition]
        trigger, opened = self._opening.open(record, state, topic.config)
        if trigger is Trigger.LACKING:
            self._reports.lost(record, state.leader_epoch, GONE if opened is None else CUT)
        else:
            self.states.change(record, trigger)
        if trigger is Trigger.OPENED and opened is not None:
            partition = record.partition = topic.partitions[where.partition] = self._partition(record, opened)
            partition.configure(topic.config)
            self._take_over(partition, state)
        elif counts_on(state, self._broker_id, -1):
            self.failures.give_up({where: -1})

    def _partition(self, record: ReplicaRecord, opened: Log) -> Partition:
        where, topic_id = record.topic_partition, record.topic_id
        high_watermark = self._logs.checkpointed_high_watermark(where)
        waiters, commits = self._environment.purgatory.wait_list(), CommitQueue(self._environment.timers)
        return Partition(where, topic_id, opened, high_watermark, self._context, waiters, commits)

    def _take_over(self, partition: Partition, state: PartitionState) -> None:
        led_by = (partition.state.leader, partition.leader_epoch)
        partition.apply(state)
        if led_by != (partition.state.leader, partition.leader_epoch):
            self._follow(partition)
        if partition.failure is not None:
            self._reload(partition)

    def _follow(self, partition: Partition) -> None:
        """Fetch the partition if another broker leads and this replica can follow; otherwise stop fetching it."""
        fetching = self._environment.fetching
        fetching.unfollow(partition)
        record = self.states.hosted(partition.topic_partition)
        is_usable = partition.failure is None and not self._reports.is_ahead(record, partition)
        if is_usable and partition.state.leader not in (self._broker_id, NO_LEADER):
            fetching.follow(partition)

    def _remove(self, record: ReplicaRecord) -> None:
        """Stop a replica that is being removed; delete its log or keep it as a stray log, as the policy decides."""
        if record.state is not ReplicaState.GOING:
            return
        topic_partition, partition = record.topic_partition, record.partition
        if partition is not None:
            self._environment.fetching.unfollow(partition)
            partition.resign()
            self._policy.remove(topic_partition, record.topic_id)
        else:
            self._policy.remove_untaken(topic_partition, record.topic_id)
        self.states.change(record, Trigger.REMOVED)

    def _drop(self, document: TopicDocument) -> None:
        """Stop serving a deleted topic, and schedule the removal of its logs."""
        self.settings.forget(document.name)
        self._out_of_sync.pop(document.name, None)
        topic = self.lookup.remove(document.name)
        for index in {*range(len(document.partitions)), *(topic.partitions if topic is not None else ())}:
            topic_partition = TopicPartition(document.name, index)
            if self.states.get(topic_partition) is not None:
                self._unassign(topic_partition)
            elif not self.states.going(topic_partition) and self._policy.is_untaken(topic_partition, document.topic_id):
                self.states.begin(topic_partition, document.topic_id, Trigger.UNASSIGNED)

    def synced(self, topic_partition: TopicPartition) -> None:
        """Continue the appends and fetches that waited for a sync of the log (`flush.messages`)."""
        partition = self.lookup.hosted(topic_partition)
        if partition is not None and partition.failure is None:
            partition.synced()
            self._environment.fetching.go_on(partition)

    def check_isr(self) -> None:
        """Check the ISR of all partitions for replicas that lag or may join, some in each turn of the event loop."""
        self._isr_checks.begin()

    def _check_isr(self, partition: Partition) -> None:
        partition.check_isr(monotonic_ms(self._environment.clock))
