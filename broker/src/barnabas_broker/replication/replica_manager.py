"""The partitions that this broker hosts: made and removed as the metadata image says, brought back when a disk is.

`partition_lookup` finds them for requests, `offline_partitions` takes them offline.
"""

import logging
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.fencing import counts_on
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.replication.commit_queue import CommitQueue
from barnabas_broker.replication.hosted_topic import HostedTopic
from barnabas_broker.replication.log_fates import LogFates
from barnabas_broker.replication.log_reports import LogReports
from barnabas_broker.replication.missing_logs import MissingLogs
from barnabas_broker.replication.offline_partitions import OfflinePartitions
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.partition_environment import PartitionEnvironment
from barnabas_broker.replication.partition_lookup import PartitionLookup
from barnabas_broker.replication.removals import Removal, Removals
from barnabas_broker.replication.replica_environment import ReplicaEnvironment
from barnabas_broker.replication.topic_settings import TopicSettings
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_core.clock import monotonic_ms
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError
from barnabas_core.fair_turns import FairRounds, FairTurn
from barnabas_core.loop_turns import timed
from barnabas_core.topic_name import is_internal
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

MADE_IN_A_TURN: Final = 8
MAKING_S: Final = 0.002
"""In one turn of the loop so few partitions are made: each is a directory and a file, and some disks are slow."""


class ReplicaManager:
    """Follows the image: makes, leads, follows and removes."""

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
        self._fates = LogFates(broker_id, logs, image)
        self._environment = environment
        self._reports = LogReports(broker_id, environment)
        self._context = PartitionEnvironment(
            broker_id,
            environment.clock,
            self._is_eligible,
            lambda: self._config.replica_lag_time_max_ms,
            environment.propose_isr,
            self._own_broker_epoch,
            environment.turned_away,
        )
        self.checkpointed: dict[TopicPartition, int] = {}
        """High watermarks from before the start, of partitions that are not made yet."""
        self.lookup: Final = PartitionLookup(broker_id, image, environment.is_awake)
        self.failures: Final = OfflinePartitions(
            self.lookup, logs, environment.fetching, environment.give_up, environment.clock, environment.timers
        )
        self._isr_checks = FairRounds(environment.clock, environment.timers, self.lookup.partitions, self._check_isr)
        self._configurations = FairRounds(
            environment.clock, environment.timers, lambda: list(image.topics), self._configure
        )
        self._returns = FairRounds(environment.clock, environment.timers, self._missed, self._look_again)
        self._removals = Removals(environment.clock, environment.timers, self._remove)
        self._burials = FairRounds(environment.clock, environment.timers, self._fates.strays_to_bury, self._fates.bury)
        self._is_making = False
        """Whether the next turn of the loop makes some."""
        self._missing = MissingLogs()
        self._has_stopped = False

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Who may join an ISR: alive, going to stay, and the incarnation of it that is registered (KIP-903)."""
        found = self._image.brokers.get(broker_id)
        return (
            found is not None and not found.fenced and not found.is_shutting_down and found.broker_epoch == broker_epoch
        )

    def _own_broker_epoch(self) -> int:
        found = self._image.brokers.get(self._broker_id)
        return -1 if found is None else found.broker_epoch

    def bring_back(self) -> None:
        """What is offline and has a log again, loaded anew, and what no disk could take. Some a turn of the loop.

        Of the rest is said once more that it goes on elsewhere.
        """
        self._returns.begin()

    def _missed(self) -> list[TopicPartition]:
        missing = self._missing.unloaded | self._missing.uncreated | self._logs.failed.keys()
        return [*self._reports.ahead(), *self.failures.partitions, *missing]

    def _look_again(self, topic_partition: TopicPartition) -> None:
        partition = self.lookup.hosted(topic_partition)
        if partition is None:
            self._look_for(topic_partition)
        elif partition.failure is not None:
            self._look_after(partition)
        else:
            self._reports.is_ahead(partition)

    def _look_for(self, topic_partition: TopicPartition) -> None:
        """One that is not here, and may have to be."""
        document, number = self._image.topics.get(topic_partition.topic), topic_partition.partition
        if document is None or number >= len(document.partitions):
            return
        if self._broker_id not in document.partitions[number].replicas:
            self._missing.forget(topic_partition)
            self._fates.remove_untaken(topic_partition, document.topic_id)
        elif topic_partition in self._missing.unloaded or topic_partition in self._missing.uncreated:
            self._want(self._topic(document), number)
            self._make_some()
        elif topic_partition in self._logs.failed:
            self._look_after_missing(topic_partition, document.partitions[number])

    def _look_after(self, partition: Partition) -> None:
        """An offline one: first the metadata goes on without it, then it comes back with what its disk has."""
        topic_partition = partition.topic_partition
        if counts_on(partition.state, self._broker_id, partition.failed_epoch):
            self.failures.give_up({topic_partition: partition.failed_epoch})
            return
        loaded = self._fates.claim(topic_partition, partition.topic_id) or self._fates.begun_anew(partition)
        if loaded is not None and loaded is not partition.log and not self._reports.has_lost(partition, loaded):
            partition.come_back(loaded)
            del self.failures.partitions[topic_partition]
            self._follow(partition)
            log.info("%s is online again", topic_partition)

    def _look_after_missing(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """One whose log could not be loaded or made."""
        if counts_on(state, self._broker_id, -1):
            self.failures.give_up({topic_partition: -1})

    def offline(self) -> list[TopicPartition]:
        """The partitions that should be here and cannot be served: their disk failed or their log is damaged."""
        return [each for each in self._assigned() if each not in self.lookup.unmade and not self._is_served(each)]

    def out_of_sync(self) -> list[TopicPartition]:
        """The partitions that are followed here and whose leader does not count this broker in yet, or any more.

        A replica that is only being added is not missed by anybody.
        """
        return [
            TopicPartition(document.name, index)
            for document in self._image.topics.values()
            for index, state in enumerate(document.partitions)
            if self._broker_id in state.replicas
            and self._broker_id not in (*state.isr, *state.adding_replicas)
            and state.leader != NO_LEADER
        ]

    def _assigned(self) -> Iterator[TopicPartition]:
        for document in self._image.topics.values():
            for index, state in enumerate(document.partitions):
                if self._broker_id in state.replicas:
                    yield TopicPartition(document.name, index)

    def _is_served(self, topic_partition: TopicPartition) -> bool:
        partition = self.lookup.hosted(topic_partition)
        return partition is not None and partition.failure is None

    async def start(self) -> None:
        """Take over what the image holds, some of it a turn of the loop; its changes are followed meanwhile, too."""
        self.checkpointed = self._logs.checkpointed_high_watermarks()
        if not all(each.is_online for each in self._logs.log_dirs):
            self._missing.unloaded = set(self._assigned()) - self._logs.logs.keys()
        turn = FairTurn(self._environment.clock)
        await self._fates.sweep(turn)
        self._image.subscribe(self._image_changed)
        async for name in turn.over(self._image.topics):
            if name in self._image.topics:
                self._host(self._image.topics[name])
        while self.lookup.unmade:
            await turn.give_way()
            if self.lookup.unmade:
                self._make_one()
        await self._fates.sweep(turn)  # What went during the first sweep, nobody was told of.

    async def sweep(self, *, is_due: bool = True) -> None:
        """Logs that came back with a disk, of partitions that went meanwhile, and those that no disk has let go."""
        if is_due or self._fates.is_sweep_due:
            await self._fates.sweep(FairTurn(self._environment.clock))

    def stop(self) -> None:
        """Make no more, and lead none, whatever the metadata says from now on.

        A batch that was looked into meanwhile must not come to a log that is closed."""
        self._has_stopped = True
        self.lookup.unmade.clear()
        self._removals.stop()
        self._burials.stop()
        self._returns.stop()
        for partition in self.lookup.partitions():
            partition.resign()

    def reconfigure(self, config: BrokerConfig) -> None:
        """Other broker settings: the topics' effective ones change with them."""
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
        if change.buried:
            self._burials.begin()
        for document in change.deleted:
            self._drop(document)
        for document in (*change.created, *change.changed):
            self._host(document)
        self._removals.begin()
        self._make_some()
        if change.brokers:
            self.check_isr()  # Who is alive again may join; an idle follower has no other occasion.

    def _host(self, document: TopicDocument) -> None:
        """Take over leaders and settings of a topic's partitions here; what is missing of them is to be made."""
        config, topic = self.settings.of(document).config, self._topic(document)
        is_configured, topic.config = topic.config is config, config
        for index, state in enumerate(document.partitions):
            partition = topic.partitions.get(index)
            if self._broker_id not in state.replicas:
                if partition is not None:
                    del topic.partitions[index]
                    self._removals.add(Removal(partition.topic_partition, topic.topic_id, partition))
            elif partition is not None:
                if not is_configured:
                    partition.configure(config)
                if partition.state is not state or partition.failure is not None:  # Most are as they were.
                    self._take_over(partition, state)
            else:
                self._want(topic, index)

    def _topic(self, document: TopicDocument) -> HostedTopic:
        found = self.lookup.topics.get(document.name)
        return found or HostedTopic(document.name, document.topic_id, self.settings.of(document).config)

    def _want(self, topic: HostedTopic, index: int) -> None:
        """It is to be made."""
        self.lookup.add(topic)
        topic_partition = TopicPartition(topic.name, index)
        self.lookup.unmade[topic_partition] = None
        if is_internal(topic.name):  # Coordinators load it in this turn; it comes once in a cluster's life.
            self.lookup.unmade.move_to_end(topic_partition, last=False)
            self._make_one()

    def _make_some(self) -> None:
        """As many as a turn of the loop has time for, unless the next turn does that."""
        if not self._is_making:
            self._make_next()

    @timed("making of partitions")
    def _make_next(self) -> None:
        turn = FairTurn(self._environment.clock, MADE_IN_A_TURN, MAKING_S)
        while self.lookup.unmade and turn.take():
            self._make_one()
        self._is_making = bool(self.lookup.unmade)
        if self._is_making:
            self._environment.timers.call_soon(self._make_next)

    def _make_one(self) -> None:
        """The next one, by the image of now: since it was to be made it may have gone, or come by another way."""
        topic_partition, _ = self.lookup.unmade.popitem(last=False)
        name, index = topic_partition
        document, topic = self._image.topics.get(name), self.lookup.topics.get(name)
        if document is None or topic is None or index >= len(document.partitions) or index in topic.partitions:
            return
        self._removals.finish(topic_partition)
        state = document.partitions[index]
        partition = self._make(topic, topic_partition, state) if self._broker_id in state.replicas else None
        if partition is not None:
            topic.partitions[index] = partition
            partition.configure(topic.config)
            self._take_over(partition, state)

    def _take_over(self, partition: Partition, state: PartitionState) -> None:
        led_by = (partition.leader_id, partition.leader_epoch)
        try:
            partition.apply(state)
            if led_by != (partition.leader_id, partition.leader_epoch):
                self._follow(partition)
        except StorageError as error:
            self.failures.storage_failed(partition, error)
        if partition.failure is not None:
            self._look_after(partition)

    def _make(self, topic: HostedTopic, topic_partition: TopicPartition, state: PartitionState) -> Partition | None:
        opened = self._open_log(topic_partition, topic.topic_id, state, topic.config)
        if opened is None:
            self._look_after_missing(topic_partition, state)
            return None
        high_watermark = self.checkpointed.pop(topic_partition, 0)
        waiters, commits = self._environment.purgatory.wait_list(), CommitQueue(self._environment.timers)
        return Partition(topic_partition, topic.topic_id, opened, high_watermark, self._context, waiters, commits)

    def _follow(self, partition: Partition) -> None:
        """Fetch from the leader of now, if it is another broker."""
        fetching = self._environment.fetching
        fetching.unfollow(partition)
        is_usable = partition.failure is None and not self._reports.is_ahead(partition)
        if is_usable and partition.leader_id not in (self._broker_id, NO_LEADER):
            fetching.follow(partition)

    def _remove(self, removal: Removal) -> None:
        """The replica is elsewhere now, or its topic is gone."""
        topic_partition, topic_id, partition = removal
        if partition is not None:
            self.failures.partitions.pop(topic_partition, None)
            self._reports.forget(topic_partition)
            self._environment.fetching.unfollow(partition)
            partition.resign()
        self._fates.remove(topic_partition, topic_id)

    def _open_log(
        self, topic_partition: TopicPartition, topic_id: UUID, state: PartitionState, config: LogConfig
    ) -> Log | None:
        """The log that was found at the start, or a new one; None when no directory can take it."""
        found = self._fates.claim(topic_partition, topic_id)
        if found is None and self._logs.strays.of(topic_id, topic_partition.partition):
            self._missing.unloaded.add(topic_partition)
        if found is None and self._may_lie_elsewhere(topic_partition):
            return None
        may_lack = topic_partition in self._missing.unloaded and self._fates.may_lack(found)
        if may_lack and self._reports.has_lost_with_dir(topic_partition, state, found):
            return None
        self._missing.unloaded.discard(topic_partition)
        if found is not None:
            self._missing.uncreated.discard(topic_partition)
            return found
        wanted_dir = dict(zip(state.replicas, state.log_dirs, strict=False)).get(self._broker_id) or None
        try:
            created = self._logs.create(topic_partition, topic_id, config, wanted_dir)
        except (ApiError, StorageError) as error:
            if topic_partition not in self._missing.uncreated:
                log.error("cannot create %s: %s", topic_partition, error)
            self._missing.uncreated.add(topic_partition)
            return None
        self._missing.uncreated.discard(topic_partition)
        return created

    def _may_lie_elsewhere(self, topic_partition: TopicPartition) -> bool:
        """Damaged, or perhaps on a lost disk: a new, empty log would hide the records. That was said already."""
        if topic_partition in self._missing.unloaded:
            return not all(each.is_online for each in self._logs.log_dirs)
        return topic_partition in self._logs.failed

    def _drop(self, document: TopicDocument) -> None:
        """A deleted topic: nothing answers for it from now on, and its files go in the background."""
        self.settings.forget(document.name)
        topic = self.lookup.remove(document.name)
        hosted = {} if topic is None else topic.partitions
        for partition in hosted.values():
            self._removals.add(Removal(partition.topic_partition, partition.topic_id, partition))
        for index in [each for each in range(len(document.partitions)) if each not in hosted]:
            topic_partition = TopicPartition(document.name, index)
            self._missing.forget(topic_partition)
            if self._fates.is_untaken(topic_partition, document.topic_id):
                self._removals.add(Removal(topic_partition, document.topic_id, None))

    def synced(self, topic_partition: TopicPartition) -> None:
        """More of a log is on the disk, as its `flush.messages` asks: what waited for that goes on."""
        partition = self.lookup.hosted(topic_partition)
        if partition is not None and partition.failure is None:
            partition.synced()
            self._environment.fetching.go_on(partition)

    def check_isr(self) -> None:
        """Who lags for too long leaves the ISR of the partitions led here, who can joins. Some a turn of the loop."""
        self._isr_checks.begin()

    def _check_isr(self, partition: Partition) -> None:
        partition.check_isr(monotonic_ms(self._environment.clock))
