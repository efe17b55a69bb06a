"""One broker, from its settings to a clean shutdown: what is made in which order, and taken down in the other.

Everything is wired here and nowhere else.
"""

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final
from uuid import uuid4

from barnabas_broker.app.chores import Chore, Chores
from barnabas_broker.app.compaction import make_cleaner, make_inspector
from barnabas_broker.app.log_chores import LogChores
from barnabas_broker.app.loop_time import LoopTimers, SystemClock
from barnabas_broker.app.offsets_topic import OFFSETS_TOPIC, follow_offsets_topic
from barnabas_broker.app.pages import make_pages
from barnabas_broker.coordinators.groups.config import group_config
from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.shard import Environment
from barnabas_broker.coordinators.producer_ids import ProducerIds
from barnabas_broker.handlers.services import Services
from barnabas_broker.handlers.table import MESSAGE_HANDLERS, RAW_HANDLERS, message_handler
from barnabas_broker.metadata import image_feed
from barnabas_broker.metadata.controller import Controller
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.duties import ControllerDuties
from barnabas_broker.metadata.image import ImageChange, MetadataImage
from barnabas_broker.metadata.membership import Membership, ensure_cluster_id
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.metadata.sqlite_store import SqliteStore, database_path
from barnabas_broker.metadata.store import StoreUnavailable
from barnabas_broker.replication.follower_sessions import FollowerSessions, LeaderEnvironment
from barnabas_broker.replication.isr_changes import IsrChanges
from barnabas_broker.replication.log_mover import LogMover
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.replication.record_log import RecordLog
from barnabas_broker.replication.replica_manager import ReplicaManager, Surroundings
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.server.http import HttpServer
from barnabas_broker.server.listener import Listener
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.files import PosixFileSystem
from barnabas_broker.storage.log_dir import BrokerIdentity
from barnabas_broker.storage.log_manager import LoadProgress, LogManager, LogManagerSettings
from barnabas_broker.storage.open_files import OpenFiles
from barnabas_broker.storage.segment import LogEnvironment
from barnabas_broker.storage.trash import Trash
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.listeners import Endpoint, reachable
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import resolve_log_config
from barnabas_core.errors import ApiError

log = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
OPEN_FILES_SHARE: Final = 2
"""One of so many of the process's open files may be a segment; the others are for connections."""
QUEUED_BYTES: Final = 128 * 1024 * 1024
"""queued.max.request.bytes=-1 means no bound in Kafka; here it means this one."""
PROGRESS_S: Final = 5.0
HANDLER_IMPORT_S: Final = 0.1
HAND_OVER_S: Final = 10.0
"""For a controlled shutdown. If the metadata store does not answer for so long, leadership moves after the end."""
ISR_CHECKS_IN_LAG: Final = 2
"""A replica leaves the ISR after one to one and a half times replica.lag.time.max.ms, as in Kafka."""
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class CannotStart(Exception):
    """The broker cannot start; the message says why and what to do."""


class Broker:
    """`start`, `wait_for_signal`, `stop`."""

    def __init__(self, config: BrokerConfig, loop: asyncio.AbstractEventLoop) -> None:
        self._config = config
        self._loop = loop
        self._clock = SystemClock()
        self._timers = LoopTimers(loop)
        self._random = SystemRandom()
        self._image = MetadataImage()
        self._chores = Chores()
        self._tasks: set[asyncio.Task[object]] = set()
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._controller: Controller | None = None
        """Set while this broker is one of the cluster."""
        self._is_ready = False
        self._takedown: list[Callable[[], Awaitable[None] | None]] = []
        """What undoes the start, to be called in the other order."""

    async def start(self) -> None:
        """Return when the broker serves clients. CannotStart."""
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self._stopping.set)
        _raise_open_files_limit()
        store = await self._open_store()
        logs = await self._load_logs(await ensure_cluster_id(store, self._random))
        services = self._wire(store, logs)
        dispatcher = Dispatcher(services, RAW_HANDLERS, message_handler)
        listener, endpoints = self._bind(dispatcher)
        await self._join_cluster(store, services, endpoints)
        cleaner = self._host(services)
        await self._start_http(services, dispatcher, listener, cleaner)
        listener.start()
        self._is_ready = True
        self._spawn(_import_handlers())
        gc.collect()
        gc.freeze()  # A collection would look at every object that lives as long as the broker: 100 ms.

    async def wait_for_signal(self) -> int:
        """Serve until SIGTERM or SIGINT, or until the broker cannot go on; the exit code."""
        await self._stopping.wait()
        if self._failure is not None:
            log.error("stopping: %s", self._failure)
        return int(self._failure is not None)

    async def stop(self) -> None:
        """Take down what was started, last things first."""
        self._is_ready = False
        await self._hand_over()
        await self._chores.stop()
        while self._takedown:
            pending = self._takedown.pop()()
            if pending is not None:
                await pending
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hand_over(self) -> None:
        """Controlled shutdown: others lead before this broker is gone, so that clients wait for nobody's death."""
        others = [broker for broker in self._image.live_brokers() if broker != self._config.broker_id]
        if self._controller is None or not others or not self._config.controlled_shutdown_enable:
            return
        try:
            async with asyncio.timeout(HAND_OVER_S):
                left = await self._controller.hand_over(self._config.broker_id)
        except (ApiError, TimeoutError) as error:
            log.warning("others will lead this broker's partitions once it is gone: %s", error)
            return
        if left:
            log.warning("nobody else can lead %d partitions while this broker is away", len(left))

    async def _open_store(self) -> SqliteStore:
        path = database_path(self._config.metadata_store)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            store = await SqliteStore.open(path, self._clock)
            await image_feed.load(self._image, store)
        except (OSError, StoreUnavailable) as error:
            raise CannotStart(f"metadata.store={self._config.metadata_store}: {error}") from error
        self._takedown.append(store.close)
        return store

    async def _load_logs(self, cluster_id: str) -> LogManager:
        config = self._config
        segment_files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // OPEN_FILES_SHARE
        environment = LogEnvironment(
            PosixFileSystem(), OpenFiles(segment_files_max), Trash(), self._random, config.producer_id_expiration_ms
        )
        settings = LogManagerSettings(config.log_dirs, config.log_dirs_placement, config.log_dirs_headroom_bytes)
        identity = BrokerIdentity(cluster_id, config.broker_id)
        logs = LogManager(environment, self._clock, settings, identity, self._log_config)
        try:
            logs.load(_say_progress(self._clock))
        except LogDirRefused as error:
            raise CannotStart(str(error)) from error
        return logs

    def _log_config(self, topic: str) -> LogConfig:
        document = self._image.topics.get(topic)
        return resolve_log_config({} if document is None else document.configs, self._config)

    def _wire(self, store: SqliteStore, logs: LogManager) -> Services:
        config = self._config
        purgatory = Purgatory(self._timers)
        controller = Controller(config.broker_id, store, self._image, lambda: self._config, self._random)
        isr_changes = IsrChanges(controller.change_isr, self._timers, asyncio.sleep, self._spawn)
        surroundings = Surroundings(
            self._clock,
            self._timers,
            purgatory,
            _Alone(),
            isr_changes.propose,
            lambda partitions: self._spawn(controller.resign(partitions)),
        )
        replicas = ReplicaManager(config.broker_id, config, logs, self._image, surroundings)
        offsets_log = RecordLog(OFFSETS_TOPIC, replicas, self._clock)
        environment = Environment(group_config(config), offsets_log, self._clock, self._timers)
        inspector = make_inspector(self._timers, self._clock)
        self._takedown.append(inspector.stop)
        return Services(
            broker_id=config.broker_id,
            config=config,
            clock=self._clock,
            timers=self._timers,
            image=self._image,
            controller=controller,
            logs=logs,
            replicas=replicas,
            followers=FollowerSessions(
                LeaderEnvironment(
                    replicas.find,
                    replicas.storage_failed,
                    self._clock,
                    self._timers,
                    lambda: self._config.fetch_max_bytes,
                    self._image.brokers.__contains__,
                )
            ),
            purgatory=purgatory,
            mover=LogMover(logs, replicas, self._spawn),
            groups=GroupCoordinator(environment, config.offsets_topic_num_partitions),
            producer_ids=ProducerIds(controller.allocate_producer_ids),
            inspector=inspector,
            spawn=self._spawn,
        )

    def _bind(self, dispatcher: Dispatcher) -> tuple[Listener, list[Endpoint]]:
        config = self._config
        listener = Listener(
            self._loop,
            dispatcher,
            request_bytes_max=config.socket_request_max_bytes,
            queued_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else QUEUED_BYTES,
            idle_s_max=config.connections_max_idle_ms / 1000,
            connections_max=config.max_connections,
        )
        self._takedown.append(listener.close)
        endpoints = []
        for bound, advertised in zip(config.listeners.bound, config.listeners.advertised, strict=True):
            try:
                port = listener.bind(bound.name, bound.host, bound.port)
            except OSError as error:
                raise CannotStart(f"listeners={bound}: {error}") from error
            endpoints.append(reachable(advertised, socket.getfqdn(), port))
        return listener, endpoints

    async def _join_cluster(self, store: SqliteStore, services: Services, endpoints: Sequence[Endpoint]) -> None:
        config, logs = self._config, services.logs
        registration = BrokerRegistration(
            broker_id=config.broker_id,
            incarnation_id=uuid4(),
            listeners=tuple(endpoints),
            rack=config.broker_rack,
            log_dirs=config.log_dirs,
            directory_ids=tuple(each.directory_id for each in logs.log_dirs if each.directory_id is not None),
            boot_id=_boot_id(),
        )
        membership = Membership(
            store,
            registration,
            config.broker_heartbeat_interval_ms,
            config.broker_session_timeout_ms,
            self._clock,
            asyncio.sleep,
            was_clean=logs.was_clean,
        )
        duties = ControllerDuties(
            config.broker_id,
            store,
            self._image,
            membership,
            services.controller.partitions,
            lambda: self._config,
            self._clock,
            self._timers,
        )
        try:
            await membership.join()
        except (ApiError, StoreUnavailable) as error:
            raise CannotStart(str(error)) from error
        self._takedown.append(membership.leave)
        self._spawn(self._keep(membership))
        self._spawn(image_feed.follow(self._image, store, asyncio.sleep))
        self._spawn(duties.run())
        await membership.admitted(self._image)
        self._controller = services.controller

    async def _keep(self, membership: Membership) -> None:
        try:
            await membership.keep()
        except ApiError as error:
            self._failure = str(error)
            self._stopping.set()

    def _host(self, services: Services) -> LogCleaner:
        """Take over the partitions of the image, and follow it from now on."""
        services.replicas.start()
        follow_offsets_topic(services.groups, services.broker_id, self._image)
        services.groups.start()
        self._takedown.append(services.groups.stop)
        self._image.subscribe(lambda change: self._configs_changed(services, change))
        self._reconfigure(services)
        chores = LogChores(services.logs, services.replicas, self._clock)
        self._chores.start([*chores.table(self._config), self._isr_chore(services)])
        self._takedown.append(lambda: services.logs.shutdown(chores.high_watermarks()))
        cleaner = make_cleaner(services.logs, services.replicas, self._timers, self._clock, lambda: self._config)
        cleaner.start()
        self._takedown.append(cleaner.stop)
        return cleaner

    def _isr_chore(self, services: Services) -> Chore:
        lag_ms_max = self._config.replica_lag_time_max_ms
        return Chore("isr", lag_ms_max / 1000 / ISR_CHECKS_IN_LAG, services.replicas.check_isr)

    def _configs_changed(self, services: Services, change: ImageChange) -> None:
        if change.configs & {str(services.broker_id), ALL_BROKERS}:
            self._reconfigure(services)

    def _reconfigure(self, services: Services) -> None:
        """The file's settings with the dynamic ones over them; those that were checked on their way in cannot fail."""
        own = self._image.configs_of_broker(str(services.broker_id))
        try:
            self._config = self._config.with_dynamic(own, self._image.configs_of_broker(ALL_BROKERS))
        except InvalidConfig as error:
            log.error("the dynamic configs are not used: %s", error)
            return
        services.config = self._config
        services.replicas.reconfigure(self._config)

    async def _start_http(
        self, services: Services, dispatcher: Dispatcher, listener: Listener, cleaner: LogCleaner
    ) -> None:
        host, _, port = self._config.http_listener.rpartition(":")
        if not port:
            return
        http = HttpServer(make_pages(services, dispatcher, listener, cleaner, lambda: self._why_not_ready(services)))
        try:
            bound = await http.start(host, int(port))
        except OSError as error:
            raise CannotStart(f"http.listener={self._config.http_listener}: {error}") from error
        self._takedown.append(http.close)
        log.info("metrics at http://%s:%d/metrics", host or socket.getfqdn(), bound)

    def _why_not_ready(self, services: Services) -> str | None:
        if not self._is_ready:
            return "starting or stopping"
        offline = sorted(map(str, services.replicas.offline()))
        return f"offline: {', '.join(offline)}" if offline else None

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task: asyncio.Task[object] = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of the broker failed", exc_info=task.exception())


class _Alone:
    """Until followers fetch: nobody is followed."""

    def follow(self, partition: Partition) -> None:
        """Its leader is another broker."""

    def unfollow(self, partition: Partition) -> None:
        """It was not followed."""


async def _import_handlers() -> None:
    """One by one in the first seconds, so that no later request waits for an import."""
    for api_key in MESSAGE_HANDLERS:
        await asyncio.sleep(HANDLER_IMPORT_S)
        message_handler(api_key)


def _boot_id() -> str:
    """It is another one whenever the system has started anew; "" where it does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _raise_open_files_limit() -> None:
    """Thousands of clients and segments need as many files as the system lets a process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say_progress(clock: SystemClock) -> Callable[[LoadProgress], None]:
    """A line in the log every few seconds, while logs are loaded."""
    said_s = clock.monotonic_s()

    def say(progress: LoadProgress) -> None:
        nonlocal said_s
        if clock.monotonic_s() - said_s >= PROGRESS_S:
            said_s = clock.monotonic_s()
            log.info(
                "loading %s: %d of %d partitions, %d bytes recovered",
                progress.log_dir,
                progress.partitions_done,
                progress.partitions_total,
                progress.bytes_recovered,
            )

    return say
