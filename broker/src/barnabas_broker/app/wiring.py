"""The environment of a broker, and the construction of its log manager and of its replication from it."""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Final, NamedTuple

from barnabas_broker.metadata.documents import PARTITIONS_MAX
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.fetch_session import STEPS, FetchEnvironment, LogMover, MoveSteps, Throttle
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions, LeaderEnvironment
from barnabas_broker.replication.other_brokers import Links
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.stray_log_policy import assigned_partition, only_topic
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
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import effective_log_config


class NodeSizes(NamedTuple):
    """The limits that are not settings; the simulation sets them low, because its logs and topics are small."""

    document_partitions_max: int = PARTITIONS_MAX
    segment_bytes_max: int = sys.maxsize
    move_steps: MoveSteps = STEPS


class NodeEnvironment(NamedTuple):
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
    make_links: Callable[[MetadataImage, Callable[[], BrokerConfig]], Links]
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
    on_suspect: Callable[[int], object],
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
