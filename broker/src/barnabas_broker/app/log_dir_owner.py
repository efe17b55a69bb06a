"""The cluster id that is read from the log dirs if the metadata store has no cluster id yet."""

import logging
from typing import Final

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_core.config.broker_config import BrokerConfig

log = logging.getLogger(__name__)

_WAY_ON: Final = (
    "the broker does not serve the topics in its log dirs. Restore a backup of the metadata store, or run "
    "`barnabas restore-metadata` to restore the topics from the logs"
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
        return decode_meta_properties(files.read(f"{log_dir}/{file_names.META_PROPERTIES}"))
    except OSError:
        return None
    except ValueError as error:
        raise LogDirRefused(log_dir, f"{file_names.META_PROPERTIES} cannot be read: {error}") from error
