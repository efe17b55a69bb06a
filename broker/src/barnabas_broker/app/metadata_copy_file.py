"""The copy of the metadata that a broker keeps over its restart: a file in a log dir."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from barnabas_broker.app.chores import Chore, in_thread
from barnabas_broker.metadata.documents import CLUSTER_KEY, AnyDocument
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.remembering import Remembered, encode_copy, newest_copy, restore
from barnabas_broker.metadata.model import ClusterDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, MetadataStore
from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import MetaProperties, decode_meta_properties
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig

FILE: Final = "metadata-copy.json"
WRITTEN_EVERY_S: Final = 1.0
"""Where something has changed. What changed since is known to other brokers, or else only to the store."""

log = logging.getLogger(__name__)


class MetadataCopyFile:
    """`restore` before the broker registers, then `start`; `chore` comes round, and `write` is called at the end."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, files: FileSystem, clock: Clock) -> None:
        self._image = image
        self._config = config
        self._files = files
        self._clock = clock
        self._log_dirs: Sequence[LogDir] = ()
        self._remembered = Remembered(image, config.broker_id)

    async def restore(self, store: MetadataStore) -> None:
        """Brings the store, and the image of it, up to what the last incarnation of this broker knew.

        Raises StoreUnavailable; LogDirRefused where the store is empty and the log dirs do not say what was in it.
        """
        remembered = self.read()
        if self._image.version(CLUSTER_KEY) == ABSENT:
            remembered |= self._lost_cluster(remembered)
        await restore(remembered, self._image, store, self._config.broker_id)

    def read(self) -> dict[str, AnyDocument]:
        """By key, as the last incarnation left them; nothing where there was none, or a log dir is somebody else's."""
        owners = self._owners()
        remembered = newest_copy(self._contents(owners))
        found = remembered.get(CLUSTER_KEY)
        cluster_id = found.cluster_id if isinstance(found, ClusterDocument) else None
        identity = (cluster_id, self._config.broker_id)
        return remembered if all(owner[:2] == identity for owner in owners.values()) else {}

    def _lost_cluster(self, remembered: Mapping[str, AnyDocument]) -> dict[str, AnyDocument]:
        """The cluster that these log dirs are of, for a store that holds none; nothing where they are new."""
        cluster_id = ""
        for log_dir, owner in self._owners().items():
            cluster_id = cluster_id or owner.cluster_id
            is_known = bool(remembered) or not self._has_logs()
            if owner[:2] != (cluster_id, self._config.broker_id) or not is_known:
                raise LogDirRefused(log_dir, self._why_refused(owner))
        if not cluster_id:
            return {}
        log.error(
            "metadata.store=%s is empty; the log dirs are of cluster.id=%s, so its metadata was lost: what this broker "
            "remembers of it is written anew",
            self._config.metadata_store,
            cluster_id,
        )
        found = remembered.get(CLUSTER_KEY, ClusterDocument(cluster_id))
        return {CLUSTER_KEY: msgspec.structs.replace(found, restored_ms=self._clock.now_ms())}

    def _why_refused(self, owner: MetaProperties) -> str:
        return (
            f"it belongs to node.id={owner.node_id} of cluster.id={owner.cluster_id}; "
            f"this is node.id={self._config.broker_id}, and metadata.store={self._config.metadata_store} is empty, "
            f"while no {FILE} of this broker says what was in it: is it the right store? "
            "If its content was lost, start the cluster's other brokers first, or put it back"
        )

    def _has_logs(self) -> bool:
        try:
            names = [entry.name for log_dir in self._owners() for entry in self._files.scan(log_dir)]
        except OSError:
            return True  # As far as anybody can tell.
        return any(file_names.parse_partition_dir(name) is not None for name in names)

    def _owners(self) -> dict[str, MetaProperties]:
        """By log dir, but for those that are new, whose disk does not work, or that do not say whose they are."""
        found: dict[str, MetaProperties] = {}
        for log_dir in self._config.log_dirs:
            try:
                found[log_dir] = decode_meta_properties(self._files.read(f"{log_dir}/{file_names.META_PROPERTIES}"))
            except (OSError, ValueError):
                continue
        return found

    def _contents(self, log_dirs: Mapping[str, MetaProperties]) -> Iterator[bytes]:
        for log_dir in log_dirs:
            try:
                yield self._files.read(f"{log_dir}/{FILE}")
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning("%s/%s cannot be read: %s", log_dir, FILE, error)

    def start(self, log_dirs: Sequence[LogDir]) -> None:
        """Follow the image; the file is in the first of these that works."""
        self._log_dirs = log_dirs
        self._remembered.start()

    def chore(self) -> Chore:
        """The chore that writes what has changed, for the table of chores."""
        return Chore("metadata copy", WRITTEN_EVERY_S, self.write)

    async def write(self) -> None:
        """Where something has changed since."""
        if not self._remembered.changed:
            return
        documents, now_ms = self._remembered.take(), self._clock.now_ms()
        try:
            await in_thread(lambda: self._write(encode_copy(documents, now_ms)))
        except OSError as error:
            self._remembered.changed = True
            log.error("%s cannot be written; the next start may know less: %s", FILE, error)

    def _write(self, content: bytes) -> None:
        log_dir = next((each for each in self._log_dirs if each.is_online), None)
        if log_dir is not None:
            self._files.write_atomically(f"{log_dir.path}/{FILE}", content, sync=True)
