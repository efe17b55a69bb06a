"""The owner of a log directory: the broker and the cluster that may use it."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties, encode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import LogDirFailed, LogDirRefused


class BrokerIdentity(NamedTuple):
    """The broker that may use a directory."""

    cluster_id: str
    node_id: int


def checked_owner(files: FileSystem, log_dir: str, identity: BrokerIdentity, new_uuid: Callable[[], UUID]) -> UUID:
    """The id of a directory that is this broker's; a new one gets an id. OSError, LogDirFailed, LogDirRefused."""
    path = f"{log_dir}/{file_names.META_PROPERTIES}"
    if not files.exists(path):
        meta = MetaProperties(identity.cluster_id, identity.node_id, new_uuid())
        files.write_atomically(path, encode_meta_properties(meta), sync=True)
        return meta.directory_id
    try:
        meta = decode_meta_properties(files.read(path))
    except ValueError as error:
        raise LogDirFailed(log_dir, f"{file_names.META_PROPERTIES} cannot be read: {error}; mend it") from error
    if (meta.cluster_id, meta.node_id) != identity:
        raise LogDirRefused(
            log_dir,
            f"it belongs to node.id={meta.node_id} of cluster.id={meta.cluster_id}; "
            f"this is node.id={identity.node_id} of cluster.id={identity.cluster_id}",
        )
    return meta.directory_id
