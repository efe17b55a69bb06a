"""The environment of a broker, its stores and settings of connections, and the replication that it makes from them."""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import CLUSTER_KEY, PARTITIONS_MAX
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import (
    KubernetesCluster,
    MetadataStore,
    SecretStore,
    SqliteFile,
    StoreUnavailable,
    location,
)
from barnabas_broker.replication.fetch_session import STEPS, FetchEnvironment, LogMover, MoveSteps, Throttle
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions, LeaderEnvironment
from barnabas_broker.replication.other_brokers import Links, PeerNetwork
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.stray_log_policy import assigned_partition, only_topic
from barnabas_broker.security.sasl.listener_mechanisms import (
    ENABLED,
    SaslEnvironment,
    has_plain_of_scram,
    listener_mechanisms,
)
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES
from barnabas_broker.server.connection_bounds import BROKERS_MAX, ConnectionLimits, plain_address
from barnabas_broker.server.listener import SocketSettings
from barnabas_broker.server.sasl_session import DEADLINE_S, InThread, Logins, SaslListener
from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem, OpenFiles, Trash
from barnabas_broker.storage.errors import LogDirRefused, StorageError
from barnabas_broker.storage.inspection import BatchInspector
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint, ListenerSecurity
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import effective_log_config
from barnabas_kube.access import Access


class NodeSizes(msgspec.Struct, frozen=True):
    """The limits that are not settings; the simulation sets them low, because its logs and topics are small."""

    document_partitions_max: int = PARTITIONS_MAX
    segment_bytes_max: int = sys.maxsize
    move_steps: MoveSteps = STEPS


class NodeEnvironment(msgspec.Struct, frozen=True):
    """The clock, timers, files and links of a node; `boot_id` changes when the machine restarts."""

    clock: Clock
    timers: Timers
    random: Random
    new_id: Callable[[], str]
    """A function that returns a new id for a group member at each call."""
    files: FileSystem
    open_files_max: int
    boot_id: str
    inspector: BatchInspector
    make_links: Callable[[MetadataImage, Callable[[], BrokerConfig]], PeerNetwork]
    sizes: NodeSizes = NodeSizes()
    is_cached: Callable[[FileSlice], bool] = lambda _: True
    """A function that returns True if a slice of a file can be read without waiting for a disk."""


log = logging.getLogger(__name__)

_WAY_ON: Final = (
    "the broker does not serve the topics in its log dirs. Restore a backup of the metadata store, or run "
    "`barnabas restore-metadata` to restore the topics from the logs"
)


def make_log_manager(
    environment: NodeEnvironment, image: MetadataImage, current_config: Callable[[], BrokerConfig], cluster_id: str
) -> LogManager:
    """Make the log manager, which has not loaded logs yet.

    When the log manager loads logs, it refuses log dirs that belong to another broker or cluster.
    """
    config = current_config()
    log_environment = LogEnvironment(
        environment.files,
        OpenFiles(environment.open_files_max),
        Trash(),
        environment.random,
        config.producer_id_expiration_ms,
        environment.sizes.segment_bytes_max,
    )
    topics = TopicLookup(partial(assigned_partition, image, config.broker_id), partial(only_topic, image))

    def log_config(topic: str) -> LogConfig:
        document = image.topics.get(topic)
        return effective_log_config({} if document is None else document.configs, current_config()).config

    return LogManager(
        log_environment,
        environment.clock,
        LogManagerSettings(config.log_dirs, config.log_dirs_placement, config.log_dirs_headroom_bytes),
        BrokerIdentity(cluster_id, config.broker_id),
        log_config,
        topics,
    )


def cluster_of_log_dirs(config: BrokerConfig, files: FileSystem) -> str:
    """Return the cluster id in the `meta.properties` of the log dirs, or "" if no log dir has a cluster id.

    The function is called if the metadata store has no cluster id. A cluster id in a log dir then shows that the store
    is the wrong one or has lost its content, which is logged. Raises LogDirRefused if a log dir belongs to another
    broker, or the log dirs belong to several clusters.
    """
    cluster_id = ""
    for log_dir in config.log_dirs:
        owner = _owner(log_dir, files)
        if owner is None:
            continue
        cluster_id = cluster_id or owner.cluster_id
        if owner[:2] != (cluster_id, config.broker_id):
            message = (
                f"the log dir belongs to node.id={owner.node_id} of cluster.id={owner.cluster_id}, but all log dirs "
                f"of this broker must belong to node.id={config.broker_id} and to one cluster. "
                f"metadata.store={config.metadata_store} has no cluster id yet, so it may be the wrong store. Correct "
                "node.id, log.dirs or metadata.store"
            )
            raise LogDirRefused(log_dir, message)
    if cluster_id:
        store = config.metadata_store
        log.error("metadata.store=%s has no metadata of cluster.id=%s: %s", store, cluster_id, _WAY_ON)
    return cluster_id


def _owner(log_dir: str, files: FileSystem) -> MetaProperties | None:
    try:
        return decode_meta_properties(files.read(f"{log_dir}/{checkpoints.META_PROPERTIES}"))
    except OSError:
        return None
    except ValueError as error:
        raise LogDirRefused(log_dir, f"{checkpoints.META_PROPERTIES} cannot be read: {error}") from error


def make_fetchers(
    environment: NodeEnvironment,
    image: MetadataImage,
    current_config: Callable[[], BrokerConfig],
    links: Links,
    storage_failed: Callable[[Partition, StorageError], object],
    on_suspect: Callable[[int, int | None], object],
) -> Fetchers:
    """Make the fetchers, which do not fetch yet."""
    broker_id = current_config().broker_id
    return Fetchers(
        FetchEnvironment(
            broker_id,
            lambda: image.brokers[broker_id].broker_epoch,
            links,
            environment.clock,
            environment.timers,
            current_config,
            storage_failed,
            on_suspect,
            image.registered_epoch,
        )
    )


def make_follower_sessions(
    environment: NodeEnvironment,
    image: MetadataImage,
    current_config: Callable[[], BrokerConfig],
    replicas: ReplicaManager,
) -> FollowerSessions:
    """Make the object that will hold the fetch sessions of followers."""
    return FollowerSessions(
        LeaderEnvironment(
            current_config().broker_id,
            replicas.lookup.find,
            replicas.failures.storage_failed,
            environment.clock,
            environment.timers,
            current_config,
            image.registered_epoch,
        )
    )


def make_mover(
    environment: NodeEnvironment,
    current_config: Callable[[], BrokerConfig],
    logs: LogManager,
    replicas: ReplicaManager,
    spawn: Callable[[Coroutine[object, object, None]], object],
) -> LogMover:
    """Make the mover of replicas between log dirs, which is idle until `resume`."""
    throttle = Throttle(environment.clock, lambda: current_config().replica_alter_log_dirs_io_max_bytes_per_second)
    return LogMover(logs, replicas, throttle, spawn, asyncio.sleep, environment.sizes.move_steps)


WAIT_S: Final = 1.0
POD_UID: Final = "POD_UID"
"""The environment variable with the `metadata.uid` of the broker's pod, on Kubernetes."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the boot id, which changes when the system restarts; empty without /proc."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


async def open_store(metadata_store: str, clock: Clock, stopping: asyncio.Event) -> MetadataStore:
    """Return the open store. Wait for a store on a network until `stopping` is set. Raises StoreUnavailable."""
    match location(metadata_store):
        case SqliteFile() as file:
            return await _open_sqlite(file, clock)
        case KubernetesCluster() as cluster:
            return await _open_kubernetes(cluster, clock, stopping)


async def _open_sqlite(file: SqliteFile, clock: Clock) -> MetadataStore:
    from barnabas_broker.metadata.store.sqlite_store import SqliteStore

    try:
        file.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(str(error)) from error
    return await SqliteStore.open(file.path, clock, boot_id())


async def open_secrets(metadata_store: str, clock: Clock) -> SecretStore:
    """Open the store for secrets: a SQLite file beside that of the metadata, or Kubernetes. Raises StoreUnavailable."""
    match location(metadata_store):
        case SqliteFile(path):
            from barnabas_broker.metadata.store.sqlite_secrets import SqliteSecrets

            return await SqliteSecrets.open(path.with_name(f"{path.stem}.secrets{path.suffix}"), clock, boot_id())
        case KubernetesCluster() as cluster:
            from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesSecrets

            return KubernetesSecrets(cluster, _access())


async def _open_kubernetes(cluster: KubernetesCluster, clock: Clock, stopping: asyncio.Event) -> MetadataStore:
    try:
        from barnabas_broker.metadata.store.kubernetes.kubernetes_store import KubernetesStore
    except ModuleNotFoundError as error:
        raise StoreUnavailable(f"{error}; install the missing module with `pip install 'barnabas[broker]'`") from error
    store = KubernetesStore(cluster, _access(), clock, os.environ.get(POD_UID, ""))
    try:
        await _until_it_answers(store, stopping)
    except BaseException:
        await store.close()
        raise
    return store


def _access() -> Access:
    from barnabas_kube.access import NoAccess
    from barnabas_kube.discovery import find_access

    try:
        return find_access(os.environ)
    except NoAccess as error:
        raise StoreUnavailable(str(error)) from error


async def _until_it_answers(store: MetadataStore, stopping: asyncio.Event) -> None:
    """Wait for the store; if the broker exited instead, Kubernetes would delay each restart longer."""
    while True:
        try:
            await store.leases("")
            await store.get(CLUSTER_KEY)
            return
        except StoreUnavailable as error:
            if stopping.is_set():
                raise
            log.warning("the broker waits until the metadata store responds: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await stopping.wait()


QUEUED_BYTES: Final = 128 * 1024 * 1024
"""The limit in bytes if queued.max.request.bytes=-1, which means no limit in Kafka."""


def socket_settings(config: BrokerConfig) -> SocketSettings:
    """Return the socket settings, which cannot change while the broker runs."""
    return SocketSettings(
        request_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else QUEUED_BYTES,
        idle_s_max=config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else None,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=_given(config.socket_send_buffer_bytes),
        receive_buffer_bytes=_given(config.socket_receive_buffer_bytes),
        protected_listener=config.listeners.only_between_brokers,
    )


def _given(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None


def is_open(config: BrokerConfig, endpoint: Endpoint) -> bool:
    """True if other machines can reach the listener, and its clients need neither a certificate nor SASL."""
    security = config.listener_security(endpoint.name)
    has_certificates = security.protocol.has_tls and security.value("ssl.client.auth") == "required"
    is_local = endpoint.host == "localhost" or (_is_address(endpoint.host) and ip_address(endpoint.host).is_loopback)
    return not (is_local or has_certificates or security.protocol.has_sasl)


def sasl_listeners(
    config: BrokerConfig, environment: SaslEnvironment, clock: Clock, timers: Timers, in_thread: InThread
) -> Iterator[SaslListener]:
    """Yield the listeners with SASL. Raises InvalidConfig if the settings of a mechanism are invalid."""
    for endpoint in config.listeners.bound:
        security = config.listener_security(endpoint.name)
        if not security.protocol.has_sasl:
            continue
        mechanisms = listener_mechanisms(security, environment)
        is_protected = endpoint.name == config.listeners.only_between_brokers
        yield SaslListener(
            name=endpoint.name,
            mechanisms=mechanisms,
            session_ms_max={name: _number(security, "connections.max.reauth.ms", name) for name in mechanisms},
            refusal_delay_s=config.connection_failed_authentication_delay_ms / 1000,
            frame_bytes_max=_number(security, "sasl.server.max.receive.size"),
            clock=clock,
            timers=timers,
            in_thread=in_thread,
            logins=Logins(timers, clock, BROKERS_MAX if is_protected else None, DEADLINE_S),
        )


def needs_scram_users(config: BrokerConfig) -> bool:
    """True if a listener verifies passwords by the SCRAM users."""
    securities = (config.listener_security(endpoint.name) for endpoint in config.listeners.bound)
    return any(each.protocol.has_sasl and _needs_scram_users(each) for each in securities)


def _needs_scram_users(security: ListenerSecurity) -> bool:
    return bool(SCRAM_HASHES.keys() & set(str(security.text(ENABLED)).split(","))) or has_plain_of_scram(security)


def _number(security: ListenerSecurity, setting: str, mechanism: str = "") -> int:
    value = security.value(setting, mechanism)
    assert isinstance(value, int), "a setting of type int must have been parsed into an int"
    return value


def limits_of(config: Callable[[], BrokerConfig], loop: asyncio.AbstractEventLoop) -> Callable[[], ConnectionLimits]:
    """Return a function that returns the current connection limits."""
    overrides = AddressOverrides(loop)

    def limits() -> ConnectionLimits:
        now = config()
        return ConnectionLimits(
            now.max_connections,
            now.max_connections_per_ip,
            overrides.by_address(now.max_connections_per_ip_overrides),
            now.max_connection_creation_rate,
        )

    return limits


class AddressOverrides:
    """The limits of max.connections.per.ip.overrides by address; each change of the setting resolves the host names."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: Mapping[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def by_address(self, given: Mapping[str, int]) -> Mapping[str, int]:
        """Return the maximum number of connections of each client IP address that has a limit.

        A limit that is set for a host name is missing until a background task has resolved the host name.
        """
        if given != self._given:
            self._given = given
            self._by_address = {str(ip_address(host)): limit for host, limit in given.items() if _is_address(host)}
            for host in given:
                if not _is_address(host):
                    task = self._loop.create_task(self._ask(host, given[host], self._by_address))
                    self._asking.add(task)
                    task.add_done_callback(self._asking.discard)
        return self._by_address

    async def _ask(self, host: str, limit: int, by_address: dict[str, int]) -> None:
        try:
            found = await self._loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError means an invalid host name.
            log.warning(
                "the limit of host %s in max.connections.per.ip.overrides has no effect, because the host name "
                "cannot be resolved: %s",
                host,
                error,
            )
            return
        by_address.update((plain_address(str(place[4][0])), limit) for place in found)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
