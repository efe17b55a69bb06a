"""The construction of the log manager from the file system, the settings and the metadata image.

If the metadata store has no cluster id yet, the log dirs tell it.
"""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas_broker.app.node_environment import NodeEnvironment
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.stray_log_policy import assigned_partition, only_topic
from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem, Trash
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import effective_log_config

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
