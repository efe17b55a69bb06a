"""A job that syncs the files of a log in a thread."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.storage.errors import disk_access


@dataclass(slots=True)
class FlushJob:
    """A job that syncs a log up to `recovery_point`.

    After `run`, the event loop must call `LogSyncs.flushed`, which raises the log's recovery point.
    """

    log_dir: str
    directory: str
    calls: tuple[Callable[[], None], ...]
    recovery_point: int
    truncations: int
    """The log's number of truncations when the job was created; a later one keeps the recovery point from rising."""
    renames: int = 0
    """The number of renames of the directory when the job was created; a later one has the same effect."""

    @disk_access
    def run(self) -> None:
        """Sync everything below `recovery_point`. The call blocks. Raises StorageError."""
        for call in self.calls:
            call()
