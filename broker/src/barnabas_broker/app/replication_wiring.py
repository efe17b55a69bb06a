"""The construction of the fetchers, the fetch sessions of followers, and the mover of replicas."""

import asyncio
from collections.abc import Callable, Coroutine

from barnabas_broker.app.node_environment import NodeEnvironment
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.end_offsets import Links
from barnabas_broker.replication.fetch_session import FetchEnvironment, LogMover, Throttle
from barnabas_broker.replication.fetchers import Fetchers
from barnabas_broker.replication.follower_sessions import FollowerSessions, LeaderEnvironment
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.config.broker_config import BrokerConfig


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
