"""A broker without sockets and signals: the construction of metadata, logs, replication and coordinators.

`app.broker` runs one node in a process, and the simulation runs several.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from uuid import UUID

from barnabas_broker.app.chores import Chore, Chores
from barnabas_broker.app.coordinators import (
    CoordinatorWorld,
    DeliveryWorld,
    make_delivery,
    make_groups,
    make_share_state,
    make_transactions,
    start_coordinators,
)
from barnabas_broker.app.dynamic_settings import DynamicSettings, ignored_configs
from barnabas_broker.app.hand_over import hand_over
from barnabas_broker.app.log_chores import LogChores
from barnabas_broker.app.log_end_reports import LogEndReports
from barnabas_broker.app.log_wiring import cluster_of_log_dirs, make_log_manager
from barnabas_broker.app.node_environment import NodeEnvironment
from barnabas_broker.app.registration import last_incarnation, registration_of
from barnabas_broker.app.replication_wiring import make_fetchers, make_follower_sessions, make_mover
from barnabas_broker.app.supervision import Supervisor, every
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.coordinators.runtime.feature_users import FeatureUsers
from barnabas_broker.coordinators.runtime.peer_requests import LinkEnvironment
from barnabas_broker.coordinators.share_delivery.delivery import ShareDelivery
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.encoded_topics import EncodedTopics
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.controller import Controller
from barnabas_broker.metadata.controller.deletions import Restorations, Transitions
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ALL_BROKERS, CLUSTER_KEY
from barnabas_broker.metadata.features import unsupported
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_broker.metadata.membership.membership import Membership, ensure_cluster_id
from barnabas_broker.metadata.membership.pause_detection import PauseDetection
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.replication.end_offsets import EndOffsets, Links, OfflineReports
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.leader_propagation import ClientDrain, LeaderPropagation
from barnabas_broker.replication.leader_replica import IsrChanges
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.replica_states import ReplicaEnvironment
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint, Listeners
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.steps import Steps

log = logging.getLogger(__name__)

HANG_S: Final = 120.0
"""The seconds without progress after which a periodic task counts as hanging; longer than the timeouts of requests to
the metadata store."""
DISK_HANG_S: Final = 600.0
"""The seconds after which a step of disk work, such as the sync of a segment, counts as hanging."""
PROBE_S: Final = 30.0
CANCEL_S: Final = 1.0
"""The seconds to wait for cancelled tasks; then the leases are released even if a task hangs."""
ISR_CHECKS_IN_LAG: Final = 2
"""The number of ISR checks during replica.lag.time.max.ms, as in Kafka; a lagging replica leaves the ISR after 1 to 1.5
times this period."""


class Node:
    """A broker without sockets; call `load`, `join` and `host` in this order, and `stop` at any time.

    `on_failure` is called with the reason if the node cannot continue.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MetadataStore,
        environment: NodeEnvironment,
        on_failure: Callable[[str], object],
    ) -> None:
        self.config = config
        self.image = MetadataImage(environment.sizes.document_partitions_max)
        self._dynamic = DynamicSettings(self.image)
        self._store = store
        self._environment = environment
        self.supervisor = Supervisor(on_failure)
        self.pause_detection = PauseDetection(
            store,
            self.image,
            config.broker_session_timeout_ms // 2,
            environment.clock,
            environment.timers,
            asyncio.sleep,
            self.supervisor.spawn,
        )
        self.chores = Chores(partial(self.supervisor.supervise, hang_s=DISK_HANG_S))
        self._takedown: list[Callable[[], Awaitable[None] | None]] = []
        """The functions that undo what the start did, in the order of the start; `stop` calls them in reverse order."""
        self._give_back: Callable[[], Awaitable[None]] = _nothing
        """The function that releases the leases of the broker; it does nothing before `join`."""
        self._endpoints_of: Callable[[Listeners], tuple[Endpoint, ...]]
        self.handler_environment: HandlerEnvironment
        self.membership: Membership
        self.controller: Controller
        self.restorations: Restorations
        self.fetchers: Fetchers
        self.isr_changes: IsrChanges
        self._client_drain: ClientDrain
        self._hand_over: Callable[[], Awaitable[None]]
        self._log_ends: LogEndReports

    async def load(
        self,
        on_progress: Callable[[LoadProgress], None] = lambda _: None,
        in_thread: Callable[[Callable[[], object]], Awaitable[object]] = asyncio.to_thread,
    ) -> None:
        """Load the current metadata, then the logs, then construct the parts of the node.

        Raises StoreUnavailable, LogDirRefused and MalformedDocument, and ApiError if the metadata needs a newer broker
        version. The thread that loads the logs may read the metadata image, which stays unchanged meanwhile.
        """
        await image_feed.load(self.image, self._store)
        why_not = unsupported(self.image.features)
        if why_not is not None:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, why_not)
        self.config = self._dynamic.over(self.config)
        is_known = self.image.document(CLUSTER_KEY) is not None
        of_log_dirs = "" if is_known else cluster_of_log_dirs(self.config, self._environment.files)
        wanted = str(self.config.value("cluster.id"))
        cluster_id = await ensure_cluster_id(self._store, self._environment.random, of_log_dirs, wanted)
        logs = make_log_manager(self._environment, self.image, self.current_config, cluster_id)
        before = last_incarnation(self.image.brokers.get(self.config.broker_id), self._environment.boot_id)
        await in_thread(lambda: logs.load(on_progress, last_incarnation=before))
        self._wire(logs)

    def _wire(self, logs: LogManager) -> None:
        config, clock, timers = self.config, self._environment.clock, self._environment.timers
        metadata_writer = MetadataWriter(
            config.broker_id, self._store, self.image, self.current_config, self._environment.random, clock.now_ms
        )
        purgatory = Purgatory(timers)
        links = self._environment.make_links(self.image, self.current_config)
        self._client_drain = ClientDrain(clock, asyncio.sleep)
        self._hand_over = self._make_hand_over(metadata_writer, links)
        replicas = self._wire_replicas(logs, metadata_writer, purgatory, links)
        producer_ids = ProducerIds(metadata_writer.allocate_producer_ids)
        world = self._coordinator_world(replicas, links, producer_ids, metadata_writer)
        transactions, share_state = make_transactions(world), make_share_state(world)
        self._takedown += [transactions.close, share_state.persister.close]
        self.handler_environment = HandlerEnvironment(
            broker_id=config.broker_id,
            config=config,
            clock=clock,
            timers=timers,
            image=self.image,
            metadata_writer=metadata_writer,
            logs=logs,
            replicas=replicas,
            fetchers=self.fetchers,
            followers=make_follower_sessions(self._environment, self.image, self.current_config, replicas),
            isr_changes=self.isr_changes,
            end_offsets=EndOffsets(config.broker_id, links, self.image, asyncio.timeout),
            purgatory=purgatory,
            mover=make_mover(self._environment, self.current_config, logs, replicas, self.supervisor.spawn),
            groups=make_groups(world, share_state.persister),
            transactions=transactions.coordinator,
            gate=transactions.gate,
            shares=self._make_delivery(world, purgatory, transactions.links, share_state.persister, metadata_writer),
            share_state=share_state.coordinator,
            persister=share_state.persister,
            feature_users=FeatureUsers(transactions.links, self.image),
            producer_ids=world.producer_ids,
            inspector=self._environment.inspector,
            trust=BatchTrust(),
            encoded_topics=EncodedTopics(),
            answers=LargeResponses(clock, timers),
            metadata_answers=LargeResponses(clock, timers),
            attempt=self.supervisor.attempt,
            ignored_configs=partial(ignored_configs, config.broker_id, self._dynamic, replicas.settings),
        )

    def _make_delivery(
        self,
        world: CoordinatorWorld,
        purgatory: Purgatory,
        links: LinkEnvironment,
        persister: SharePersister,
        writer: MetadataWriter,
    ) -> ShareDelivery:
        is_cached = self._environment.is_cached
        made = make_delivery(world, DeliveryWorld(persister, purgatory, links, self.current_config, is_cached, writer))
        self._takedown.append(made.client.close)
        return made.delivery

    def _make_hand_over(self, metadata_writer: MetadataWriter, links: Links) -> Callable[[], Awaitable[None]]:
        broker_id = self.config.broker_id
        propagation = LeaderPropagation(broker_id, links, self.image, asyncio.sleep, asyncio.timeout)
        return partial(hand_over, broker_id, self.image, metadata_writer, propagation, self._client_drain)

    def _coordinator_world(
        self, replicas: ReplicaManager, links: Links, producer_ids: ProducerIds, metadata_writer: MetadataWriter
    ) -> CoordinatorWorld:
        return CoordinatorWorld(
            self.config,
            self.image,
            self._environment.clock,
            self._environment.timers,
            replicas,
            links,
            producer_ids,
            self.pause_detection.is_awake,
            self._environment.new_id,
            self.supervisor.attempt,
            partial(image_feed.catch_up, self.image, self._store, asyncio.sleep),
            metadata_writer.create_automatically,
        )

    def _wire_replicas(
        self, logs: LogManager, metadata_writer: MetadataWriter, purgatory: Purgatory, links: Links
    ) -> ReplicaManager:
        environment, broker_id = self._environment, self.config.broker_id
        self.isr_changes = IsrChanges(
            metadata_writer.change_isr, environment.timers, asyncio.sleep, self.supervisor.spawn
        )
        self.fetchers = make_fetchers(
            environment, self.image, self.current_config, links, self._storage_failed, self._suspect
        )
        replica_environment = ReplicaEnvironment(
            environment.clock,
            environment.timers,
            purgatory,
            self.fetchers,
            self.isr_changes.propose,
            OfflineReports(metadata_writer.resign, self.supervisor.spawn).propose,
            OfflineReports(metadata_writer.lose, self.supervisor.spawn).propose,
            OfflineReports(metadata_writer.overtake, self.supervisor.spawn).propose,
            self.pause_detection.is_awake,
            self._client_drain.turned_away,
        )
        return ReplicaManager(broker_id, self.config, logs, self.image, replica_environment)

    def _storage_failed(self, partition: Partition, error: StorageError) -> None:
        self.handler_environment.replicas.failures.storage_failed(partition, error)

    def _suspect(self, broker_id: int) -> None:
        self.controller.suspect(broker_id)

    def current_config(self) -> BrokerConfig:
        """Return the current settings, which include dynamic configs."""
        return self.config

    async def join(self, endpoints_of: Callable[[Listeners], tuple[Endpoint, ...]], incarnation_id: UUID) -> None:
        """Register the broker, start its tasks for metadata, and wait until the controller has unfenced the broker.

        `endpoints_of` returns the advertised endpoints of listeners, whose ports are known once the sockets are bound.
        Raises ApiError and StoreUnavailable.
        """
        self._endpoints_of = endpoints_of
        config, logs, environment = self.config, self.handler_environment.logs, self._environment
        self._log_ends = LogEndReports(config.broker_id, self._store, self.image, logs)
        registration = registration_of(
            config, logs, incarnation_id, endpoints_of(config.listeners), environment.boot_id
        )
        self.membership = Membership(
            self._store,
            registration,
            config.broker_heartbeat_interval_ms,
            config.broker_session_timeout_ms,
            environment.clock,
            asyncio.sleep,
            was_clean=logs.was_clean,
            tell_log_ends=self._log_ends.begin_incarnation,
        )
        self.controller = Controller(
            config.broker_id,
            self._store,
            self.image,
            self.membership,
            self.handler_environment.metadata_writer.partitions,
            self.current_config,
            environment.clock,
            environment.timers,
        )
        self.restorations = Restorations(
            self.image,
            Transitions(self._store, self.image),
            lambda: self.membership.is_controller,
            asyncio.sleep,
        )
        await self.membership.join()
        self._give_back = self.membership.leave
        self._takedown.append(self._give_back)
        self._supervise()
        await self.membership.admitted(self.image)
        self._log_ends.admitted()

    def _supervise(self) -> None:
        feed = image_feed.ImageFeed(self.image, self._store, asyncio.sleep)
        probes, supervise = Steps(), partial(self.supervisor.supervise, hang_s=HANG_S)
        probe = every(PROBE_S, lambda: probes.count(feed.probe()), asyncio.sleep)
        supervise("leases", self._keep(), lambda: self.membership.passes)
        supervise("metadata watch", feed.follow(), feed.progress)
        supervise("checks of the metadata watch", probe, probes.progress)
        supervise("controller", self.controller.run(), self.controller.progress)
        supervise("restorations", self.restorations.run(), self.restorations.progress)
        period_s = self.config.broker_heartbeat_interval_ms / 1000
        self.supervisor.supervise("watchdog", self.supervisor.watch(period_s, asyncio.sleep))

    async def _keep(self) -> None:
        try:
            await self.membership.keep()
        except ApiError as error:
            self.supervisor.fail(str(error))

    async def host(self) -> None:
        """Host the partitions that the metadata image assigns to this broker; start coordinators and periodic tasks.

        Clients are served only afterwards.
        """
        environment = self.handler_environment
        self.pause_detection.start()
        log_chores = LogChores(environment.logs, environment.replicas, self._environment.clock, self.supervisor.spawn)
        self._takedown.append(
            lambda: environment.logs.shutdown(log_chores.high_watermark_of, self.membership.registered_epoch)
        )
        self._takedown.append(self._log_ends.tell)
        self._takedown.append(environment.replicas.stop)
        self._takedown.append(self.fetchers.close)
        await environment.replicas.start()
        environment.mover.resume()
        self._takedown += start_coordinators(environment)
        self.image.subscribe(self._configs_changed)
        self._reconfigure()
        isr_check_s = self.config.replica_lag_time_max_ms / 1000 / ISR_CHECKS_IN_LAG
        isr = Chore("isr", isr_check_s, environment.replicas.check_isr)
        self.chores.start([*log_chores.table(self.config), isr, *self._log_ends.chores()])

    def start_cleaner(self, cleaner: LogCleaner) -> None:
        """Start the compaction of logs."""
        self._takedown.append(cleaner.stop)
        cleaner.start(partial(self.supervisor.supervise, hang_s=DISK_HANG_S))

    def _configs_changed(self, change: ImageChange) -> None:
        if change.configs & {str(self.config.broker_id), ALL_BROKERS}:
            self._reconfigure()

    def _reconfigure(self) -> None:
        before, self.config = self.config, self._dynamic.over(self.config)
        self.handler_environment.config = self.config
        self.handler_environment.replicas.reconfigure(self.config)
        if (self.config.broker_rack, self.config.listeners) != (before.broker_rack, before.listeners):
            self.supervisor.spawn(self._tell_place())

    async def _tell_place(self) -> None:
        """Register the rack and listeners that dynamic configs have changed; retry until the metadata store answers."""
        while True:
            try:
                await self.membership.move(self.config.broker_rack, self._endpoints_of(self.config.listeners))
                return
            except StoreUnavailable:
                await asyncio.sleep(self.config.broker_heartbeat_interval_ms / 1000)

    async def hand_over(self) -> None:
        """Move leadership to other brokers if controlled.shutdown.enable is true."""
        if self.config.controlled_shutdown_enable:
            await self._hand_over()

    async def stop(self) -> None:
        """Stop the periodic tasks, undo the steps of the start in reverse order, and cancel the other tasks."""
        self.supervisor.stopping()
        await self.chores.stop()
        while self._takedown:
            pending = self._takedown.pop()()
            if pending is not None:
                await pending
        await self.supervisor.cancel()

    async def abandon(self) -> None:
        """Cancel all tasks and release the leases after a failure, so that other brokers take over at once.

        The logs stay as after a crash, and the next start recovers them.
        """
        await self.supervisor.cancel(CANCEL_S)
        await self._give_back()


async def _nothing() -> None:
    return
