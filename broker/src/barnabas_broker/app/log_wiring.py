"""The construction of the log manager from the file system, the settings and the metadata image."""

from collections.abc import Callable
from functools import partial

from barnabas_broker.app.node_environment import NodeEnvironment
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.stray_log_policy import assigned_partition, only_topic
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.disk.trash import Trash
from barnabas_broker.storage.log_dirs.log_dir_owner import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.log_dirs.topic_lookup import TopicLookup
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.log_config import LogConfig
from barnabas_core.config.topic_configs import effective_log_config


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
