"""What the broker remembers of the metadata over its restart: a file in a log dir."""

import logging
from collections.abc import Iterator, Sequence
from typing import Final

from barnabas_broker.app.chores import Chore, in_thread
from barnabas_broker.metadata.documents import AnyDocument
from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.remembering import Remembered, encode_copy, newest_copy, restore
from barnabas_broker.metadata.store import MetadataStore
from barnabas_broker.storage.files import FileSystem
from barnabas_broker.storage.log_dir import LogDir
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig

FILE: Final = "metadata-copy.json"
WRITTEN_EVERY_S: Final = 1.0
"""Where something has changed. What changed since is known to other brokers, or else only to the store."""

log = logging.getLogger(__name__)


class MetadataMemory:
    """`restore` before the broker registers, then `start`; `chore` comes round, and `write` is called at the end."""

    def __init__(self, image: MetadataImage, config: BrokerConfig, files: FileSystem, clock: Clock) -> None:
        self._image = image
        self._config = config
        self._files = files
        self._clock = clock
        self._log_dirs: Sequence[LogDir] = ()
        self._remembered = Remembered(image, config.broker_id)

    async def restore(self, store: MetadataStore) -> None:
        """Brings the store, and the image of it, up to what the last life of this broker knew. StoreUnavailable."""
        await restore(self.read(), self._image, store, self._config.broker_id)

    def read(self) -> dict[str, AnyDocument]:
        """By key, as the last life left them; nothing where there was none."""
        return newest_copy(self._contents())

    def _contents(self) -> Iterator[bytes]:
        for log_dir in self._config.log_dirs:
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
        """Comes round."""
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
