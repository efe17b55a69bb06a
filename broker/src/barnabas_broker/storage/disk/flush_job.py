"""The syncs of a log as calls for a thread, beside the loop."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.storage.errors import disk_access


@dataclass(slots=True)
class FlushJob:
    """`run` it anywhere, then give it to `Log.flushed` on the loop: only then does the recovery point move."""

    log_dir: str
    directory: str
    calls: tuple[Callable[[], None], ...]
    recovery_point: int
    truncations: int
    """The number of truncations of the log when the job was made; a later truncation makes the job void."""
    renames: int = 0
    """The number of renames of its directory when the job was made; a later rename makes the job void."""

    @disk_access
    def run(self) -> None:
        """Blocks until everything below `recovery_point` is on the disk. LogDirFailed."""
        for call in self.calls:
            call()
