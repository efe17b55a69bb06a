"""What is to be written through to the disk, as calls that a thread may make while the loop goes on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from barnabas_broker.storage import file_names
from barnabas_broker.storage.errors import disk_access

if TYPE_CHECKING:
    from barnabas_broker.storage.log import Log


@dataclass(slots=True)
class FlushJob:
    """`run` it anywhere, then give it to `Log.flushed` on the loop: only then does the recovery point move."""

    log_dir: str
    directory: str
    calls: tuple[Callable[[], None], ...]
    recovery_point: int
    truncations: int
    """How often the log had been truncated; a later truncation makes the job void."""

    @disk_access
    def run(self) -> None:
        """Blocks until everything below `recovery_point` is on the disk. LogDirFailed."""
        for call in self.calls:
            call()


def sync_calls(log: "Log", end_offset: int) -> tuple[Callable[[], None], ...]:
    """What has to be synced until all below `end_offset` is on the disk: files first, then their names. OSError."""
    files = log.files
    segments = [each for each in log.segments.starting_at(log.recovery_point) if each.base_offset < end_offset]
    calls = [call for segment in segments for call in segment.sync_calls()]
    small = (log.known_producers.snapshots.latest_path, f"{log.directory}/{file_names.PARTITION_METADATA}")
    calls += [files.open_file(path).sync for path in small if files.exists(path)]
    save_epochs = log.epochs.save_call()
    return (*calls, *([save_epochs] if save_epochs else []), partial(files.sync_dir, log.directory))
