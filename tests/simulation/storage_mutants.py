"""Known mistakes about the state after a power cut, each planted by a patch."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from barnabas_broker.storage import errors
from barnabas_broker.storage.disk.checkpoints import EpochStart, LastIncarnation, encode_epochs
from barnabas_broker.storage.errors import DiskFull, InvalidBatch, StorageError, SyncFailed
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove
from barnabas_broker.storage.logs import log_loader
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_history import LeaderEpochs
from simulation.set_ups import loses_power_in_a_truncation


@contextmanager
def takes_a_failed_sync_for_a_full_disk() -> Iterator[None]:
    """A failed sync is retried, and the next one succeeds without the lost bytes."""
    storage_error = errors.storage_error

    def mistaken(log_dir: str, path: str, error: OSError | InvalidBatch) -> StorageError:
        return DiskFull(log_dir, str(error)) if isinstance(error, SyncFailed) else storage_error(log_dir, path, error)

    with patch.object(errors, "storage_error", mistaken):
        yield


@contextmanager
def swaps_a_copy_that_is_not_synced() -> Iterator[None]:
    """Only the active segment of a copy is synced, though others have been rolled."""
    swap = ReplicaMove.swap

    def sync_active(self: ReplicaMove) -> None:
        self._files[self.log.segments.active].sync()

    def mistaken(self: ReplicaMove, now_ms: int) -> Log:
        with patch.object(ReplicaMove, "sync", sync_active):
            return swap(self, now_ms)

    with patch.object(ReplicaMove, "swap", mistaken):
        yield


@contextmanager
def writes_epochs_without_a_sync() -> Iterator[None]:
    """The file's name is synced, its content is not; and lost epochs are not rebuilt from the batches."""

    def save(self: LeaderEpochs, entries: list[EpochStart], _: int) -> None:
        self._files.write_atomically(self._path, encode_epochs(entries), sync=False)
        self._saved = entries

    with patch.object(LeaderEpochs, "_save", save), patch.object(LeaderEpochs, "_complete_from", lambda *_: None):
        yield


@contextmanager
def lets_a_clean_mark_come_back() -> Iterator[None]:
    """The mark of a clean shutdown is removed without a sync, and its owner is not checked."""

    def mistaken(self: LogDir, _: LastIncarnation) -> int | None:
        found = [each for each in self._files.scan(self.path) if each.name == ".kafka_cleanshutdown"]
        self._files.remove(f"{self.path}/.kafka_cleanshutdown")
        return found[0].modified_ns if found else None

    with patch.object(LogDir, "_take_clean_mark", mistaken):
        yield


@contextmanager
def drops_the_lowest_segment_first() -> Iterator[None]:
    """A truncation that is interrupted leaves a hole."""
    with loses_power_in_a_truncation(lambda above: above):
        yield


@contextmanager
def forgives_holes() -> Iterator[None]:
    """A segment has lost its end in a power cut, and the next start accepts the segment after it."""
    with patch.object(log_loader, "_follows", lambda *_: True):
        yield
