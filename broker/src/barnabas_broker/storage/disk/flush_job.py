"""What is to be written through to the disk, as calls that a thread may make while the loop goes on."""

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
    """How often the log had been truncated; a later truncation makes the job void."""
    renames: int = 0
    """How often its directory had been renamed: a later rename does so, too."""

    @disk_access
    def run(self) -> None:
        """Blocks until everything below `recovery_point` is on the disk. LogDirFailed."""
        for call in self.calls:
            call()
