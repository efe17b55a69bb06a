"""A broker without sockets and signals: the construction of metadata, logs, replication and coordinators.

`app.broker` runs one node in a process, and the simulation runs several.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final
from uuid import UUID

from barnabas_broker.app.coordinators import (
    CoordinatorWorld,
    DeliveryWorld,
    make_delivery,
    make_groups,
    make_share_state,
    make_transactions,
    start_coordinators,
)
from barnabas_broker.app.log_tasks import LogEndReports, LogTasks
from barnabas_broker.app.loop_turns import PauseDetection
from barnabas_broker.app.supervision import PeriodicTask, PeriodicTasks, Supervisor, every
from barnabas_broker.app.wiring import (
    NodeEnvironment,
    cluster_of_log_dirs,
    make_fetchers,
    make_follower_sessions,
    make_log_manager,
    make_mover,
)
from barnabas_broker.coordinators.runtime.peer_requests import FeatureUsers, LinkEnvironment
from barnabas_broker.coordinators.share_delivery.delivery import ShareDelivery
from barnabas_broker.coordinators.share_state.persister import SharePersister
from barnabas_broker.coordinators.transactions.coordinator import ProducerIds
from barnabas_broker.handlers.handler_environment import (
    ClientQuotas,
    DepartedBrokers,
    HandlerEnvironment,
    IgnoredConfig,
)
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.controller import Controller
from barnabas_broker.metadata.controller.deletions import Restorations, Transitions
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ALL_BROKERS, CLUSTER_KEY, ImageChange
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.membership import Membership, cut_dirs, ensure_cluster_id, machine_ran_on
from barnabas_broker.metadata.model import SUPPORTED, BrokerRegistration, unsupported
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.leader_replica import IsrChanges, Purgatory
from barnabas_broker.replication.other_brokers import (
    ClientDrain,
    EndOffsets,
    LeaderPropagation,
    Links,
    OfflineReports,
    PeerNetwork,
)
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager, TopicSettings
from barnabas_broker.replication.replica_states import ReplicaEnvironment
from barnabas_broker.security.authorizer import AclFollower, Audit, Authorizer, lacks_acls, super_users
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.disk.checkpoints import NO_EPOCH, NO_INCARNATION, LastIncarnation
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig, unused_settings
from barnabas_core.config.definitions import ConfigProblem
from barnabas_core.config.listeners import Endpoint, Listeners
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import Steps

log = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
"""The timeout in seconds for moving leadership.

After the timeout, the remaining partitions get new leaders only when the session of this broker ends.
"""


async def hand_over(
    broker_id: int,
    image: MetadataImage,
    metadata_writer: MetadataWriter,
    leader_propagation: LeaderPropagation,
    client_drain: ClientDrain,
) -> None:
    """Move leadership from this broker to others, and wait until brokers and clients know the new leaders.

    Return at once if no other broker is alive.
    """
    if all(each == broker_id for each in image.live_brokers()):
        return
    led = [each.name for each in image.topics.values() if any(state.leader == broker_id for state in each.partitions)]
    try:
        async with asyncio.timeout(HAND_OVER_S):
            left = await metadata_writer.hand_over(broker_id)
    except (ApiError, TimeoutError) as error:
        log.warning(
            "leadership could not be moved; other brokers lead only after the session of this broker expires: %s",
            error,
        )
    else:
        if left:
            log.warning(
                "%d partitions will have no leader while this broker is down, because no other replica can lead",
                len(left),
            )
    if led:
        await leader_propagation.until_known(led)
        await client_drain.until_all_left()


class DynamicSettings:
    """The dynamic configs of one broker and of all brokers; invalid configs and configs without effect are logged."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._warnings: list[str] = []
        self.ignored: tuple[ConfigProblem, ...] = ()
        """The stored configs that are ignored because they are invalid."""

    def over(self, config: BrokerConfig) -> BrokerConfig:
        """Return `config` overridden by the dynamic configs; log new warnings and set `ignored` to the invalid ones."""
        own = self._image.configs_of_broker(str(config.broker_id))
        everybodys = self._image.configs_of_broker(ALL_BROKERS)
        in_force, ignored = config.with_usable(own, everybodys)
        if ignored and ignored != self.ignored:
            log.error("invalid dynamic configs of this broker are ignored: %s", "; ".join(map(str, ignored)))
        self.ignored = ignored
        warnings = unused_settings({**everybodys, **own})
        for warning in warnings:
            if warning not in self._warnings:
                log.warning(warning)
        self._warnings = warnings
        return in_force


def ignored_configs(broker_id: int, dynamic: DynamicSettings, topics: TopicSettings) -> Iterator[IgnoredConfig]:
    """Yield the invalid configs of this broker and of topics; a broker ignores stored configs that are invalid."""
    yield from (IgnoredConfig("broker", str(broker_id), problem.name) for problem in dynamic.ignored)
    yield from (IgnoredConfig("topic", topic, problem.name) for topic, problem in topics.ignored())


def registration_of(
    config: BrokerConfig, logs: LogManager, incarnation_id: UUID, listeners: tuple[Endpoint, ...], boot_id: str
) -> BrokerRegistration:
    """Return the registration of this incarnation of a broker."""
    online = [each for each in logs.log_dirs if each.is_online]
    return BrokerRegistration(
        broker_id=config.broker_id,
        incarnation_id=incarnation_id,
        listeners=listeners,
        rack=config.broker_rack,
        log_dirs=config.log_dirs,
        directory_ids=tuple(each.directory_id for each in online if each.directory_id is not None),
        boot_id=boot_id,
        may_lack_records=any(each.kept.cut for each in online),
        features={name: (levels.lowest, levels.highest) for name, levels in SUPPORTED.items()},
        dirs_away=len(online) < len(logs.log_dirs),
        inter_broker_listener=config.listeners.inter_broker,
    )


def last_incarnation(registered: BrokerRegistration | None, boot_id: str) -> LastIncarnation:
    """Return what the last registration of this broker says about the broker's previous incarnation.

    A clean shutdown writes a file with the broker epoch into each log dir. The result has the broker epochs that prove
    a clean shutdown of the previous incarnation. NO_EPOCH is one of them if the registration has no features, because
    an old broker version wrote the file without a broker epoch.
    """
    if registered is None:
        return NO_INCARNATION
    unnamed = () if registered.features else (NO_EPOCH,)
    epochs = (registered.broker_epoch, *unnamed)
    return LastIncarnation(epochs, machine_ran_on(registered, boot_id), cut_dirs(registered, boot_id))


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
        self._catch_up = partial(image_feed.catch_up, self.image, store, asyncio.sleep)
        self.pause_detection = PauseDetection(
            self._catch_up,
            config.broker_session_timeout_ms // 2,
            environment.clock,
            environment.timers,
            self.supervisor.spawn,
        )
        self.periodic_tasks = PeriodicTasks(partial(self.supervisor.supervise, hang_s=DISK_HANG_S))
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
        self._links: PeerNetwork
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
        metadata_writer = self._make_writer()
        purgatory = Purgatory(timers)
        links = self._links = self._environment.make_links(self.image, self.current_config)
        self._client_drain = ClientDrain(clock, asyncio.sleep)
        self._hand_over = self._make_hand_over(metadata_writer, links)
        replicas = self._wire_replicas(logs, metadata_writer, purgatory, links)
        world = self._coordinator_world(replicas, links, metadata_writer)
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
            suspect=self._suspect,
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
            answers=LargeResponses(clock, timers),
            metadata_answers=LargeResponses(clock, timers),
            fetches=LargeResponses(clock, timers),
            broker_fetches=LargeResponses(clock, timers),
            quotas=ClientQuotas(self.image, clock, config.listeners.only_between_brokers),
            departed=DepartedBrokers(self.image, clock, config.broker_session_timeout_ms),
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

    def _make_writer(self) -> MetadataWriter:
        environment = self._environment
        return MetadataWriter(
            self.config.broker_id,
            self._store,
            self.image,
            self.current_config,
            environment.random,
            environment.clock.now_ms,
        )

    def _make_hand_over(self, metadata_writer: MetadataWriter, links: Links) -> Callable[[], Awaitable[None]]:
        broker_id = self.config.broker_id
        propagation = LeaderPropagation(broker_id, links, self.image, asyncio.sleep, asyncio.timeout)
        return partial(hand_over, broker_id, self.image, metadata_writer, propagation, self._client_drain)

    def _coordinator_world(
        self, replicas: ReplicaManager, links: Links, metadata_writer: MetadataWriter
    ) -> CoordinatorWorld:
        return CoordinatorWorld(
            self.config,
            self.image,
            self._environment.clock,
            self._environment.timers,
            replicas,
            links,
            ProducerIds(metadata_writer.allocate_producer_ids),
            self.pause_detection.is_awake,
            self._environment.new_id,
            self.supervisor.attempt,
            self._catch_up,
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

    def _suspect(self, broker_id: int, answered_epoch: int | None) -> None:
        self.controller.suspect(broker_id, answered_epoch)

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
            self.image,
            registration,
            config.broker_heartbeat_interval_ms,
            config.broker_session_timeout_ms,
            environment.clock,
            asyncio.sleep,
            was_clean=logs.was_clean,
            report_log_ends=self._log_ends.begin_incarnation,
        )
        self._wire_controller()
        await self.membership.join()
        self._give_back = self.membership.leave
        self._takedown.append(self._give_back)
        self._supervise()
        await self.membership.admitted()
        self._log_ends.admitted()

    def _wire_controller(self) -> None:
        environment = self._environment
        self.controller = Controller(
            self.config.broker_id,
            self._store,
            self.image,
            self.membership,
            self.handler_environment.metadata_writer.partitions,
            self.current_config,
            environment.clock,
            environment.timers,
            self._links.refuses,
        )
        self.restorations = Restorations(
            self.image,
            Transitions(self._store, self.image),
            lambda: self.membership.is_controller,
            asyncio.sleep,
        )

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
        log_tasks = LogTasks(environment.logs, environment.replicas, self._environment.clock, self.supervisor.spawn)
        self._takedown.append(
            lambda: environment.logs.shutdown(log_tasks.high_watermark_of, self.membership.registered_epoch)
        )
        self._takedown.append(self._log_ends.report)
        self._takedown.append(environment.replicas.stop)
        self._takedown.append(self.fetchers.close)
        await environment.replicas.start()
        environment.mover.resume()
        self._takedown += start_coordinators(environment)
        self.image.subscribe(self._configs_changed)
        self._reconfigure()
        isr_check_s = self.config.replica_lag_time_max_ms / 1000 / ISR_CHECKS_IN_LAG
        isr = PeriodicTask("isr", isr_check_s, environment.replicas.check_isr)
        self.periodic_tasks.start([*log_tasks.table(self.config), isr, *self._log_ends.periodic_tasks()])

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
            self.supervisor.spawn(self._register_place())

    async def _register_place(self) -> None:
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
        await self.periodic_tasks.stop()
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


def make_authorizer(config: BrokerConfig, image: MetadataImage, clock: Clock) -> Authorizer | None:
    """Make the authorizer, which follows the ACLs in the metadata image; return None without authorizer.class.name."""
    if not config.authorizer_class_name:
        return None
    users, allows = super_users(config.super_users), config.allow_everyone_if_no_acl_found
    authorizer = Authorizer(
        users, allow_if_none=allows, audit=Audit(clock), lacks_acls=functools.partial(lacks_acls, image)
    )
    AclFollower(authorizer, image).start()
    return authorizer
