"""The owner of a log dir: the only broker that may use the log dir."""

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties, encode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import LogDirFailed, LogDirRefused


class BrokerIdentity(NamedTuple):
    """The cluster id and broker id of the broker to which a log dir belongs."""

    cluster_id: str
    node_id: int


def checked_owner(files: FileSystem, log_dir: str, identity: BrokerIdentity, new_uuid: Callable[[], UUID]) -> UUID:
    """Return the id of this broker's log dir. A new dir gets a meta.properties with a new id.

    Raises OSError. Raises LogDirFailed if meta.properties is damaged, and LogDirRefused if another broker owns the dir.
    """
    path = f"{log_dir}/{file_names.META_PROPERTIES}"
    if not files.exists(path):
        meta = MetaProperties(identity.cluster_id, identity.node_id, new_uuid())
        files.write_atomically(path, encode_meta_properties(meta), sync=True)
        return meta.directory_id
    try:
        meta = decode_meta_properties(files.read(path))
    except ValueError as error:
        raise LogDirFailed(log_dir, f"{file_names.META_PROPERTIES} cannot be read: {error}; repair the file") from error
    if (meta.cluster_id, meta.node_id) != identity:
        raise LogDirRefused(
            log_dir,
            f"the log dir belongs to node.id={meta.node_id} of cluster.id={meta.cluster_id}; "
            f"this broker is node.id={identity.node_id} of cluster.id={identity.cluster_id}",
        )
    return meta.directory_id
