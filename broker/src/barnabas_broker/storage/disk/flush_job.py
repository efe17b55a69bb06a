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
    """The log's number of truncations when the job was created.

    If the log has been truncated since, the job must not raise the recovery point.
    """
    renames: int = 0
    """The directory's number of renames when the job was created.

    If the directory has been renamed since, the job must not raise the recovery point.
    """

    @disk_access
    def run(self) -> None:
        """Sync everything below `recovery_point`. The call blocks. Raises StorageError."""
        for call in self.calls:
            call()
