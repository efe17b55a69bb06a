"""The syncs of a log, to be run in a thread."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.storage.errors import disk_access


@dataclass(slots=True)
class FlushJob:
    """The syncs of a log.

    After `run`, `LogSyncs.flushed` must be called on the event loop to move the recovery point.
    """

    log_dir: str
    directory: str
    calls: tuple[Callable[[], None], ...]
    recovery_point: int
    truncations: int
    """The number of truncations of the log when the job was created; a later truncation makes the job void."""
    renames: int = 0
    """The number of renames of the directory when the job was created; a later rename makes the job void."""

    @disk_access
    def run(self) -> None:
        """Sync everything below `recovery_point`. The call blocks. Raises StorageError."""
        for call in self.calls:
            call()
