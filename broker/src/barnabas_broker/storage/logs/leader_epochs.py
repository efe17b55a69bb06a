"""The start offset of each leader epoch, by which followers truncate (KIP-101, KIP-279).

Below the recovery point the checkpoint is right; from there on the batches are, which recovery reads anyway. So it is
written and synced before the recovery point moves: what may be lost never replaces what is safe.

Compaction may have removed the first batches of an epoch. By its batches alone it would begin where the one before it
ends: if that were too late, a replica would keep what another leader wrote there.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Lock
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.checkpoints import EpochStart, decode_epochs, encode_epochs
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.segments.batch_scan import FoundBatch
from barnabas_core.errors import ApiError, ErrorCode

UNKNOWN: Final = (-1, -1)


class FoundEpoch(NamedTuple):
    """An epoch as recovery meets it: somewhere from `start_min` to the first batch that is left, at `start_max`."""

    epoch: int
    start_min: int
    start_max: int


class LeaderEpochs:
    """Epochs and their start offsets, both rising, kept in `leader-epoch-checkpoint`."""

    __slots__ = ("_abandoned", "_begun", "_cleared", "_done", "_entries", "_files", "_saved", "_saving", "path")

    def __init__(self, files: FileSystem, path: str, saved: Iterable[EpochStart] = ()) -> None:
        self._files = files
        self.path = path
        self._saved = list(saved)
        """The entries as the checkpoint has them."""
        self._entries = self._saved
        self._saving = Lock()
        self._begun = self._done = self._cleared = self._abandoned = 0
        """The numbers of saves: begun, last done, and last begun when the checkpoint was cleared or abandoned.

        A save whose number is not above the last three is skipped.
        """

    @classmethod
    def load(cls, files: FileSystem, path: str, log_start_offset: int, batches: Iterator[FoundBatch]) -> "LeaderEpochs":
        """Read the checkpoint; where it is missing, damaged or begins too late, read the log's batches.

        It begins too late when records were deleted, and the power went before the new start was on the disk. Raises
        OSError, InvalidBatch.
        """
        saved = _read(files, path)
        if saved and saved[0].start_offset <= log_start_offset:
            return cls(files, path, saved)
        first = next(batches, None)
        if first is None or (saved and saved[0].start_offset <= first.header.base_offset):
            return cls(files, path, saved)
        epochs, end_offset = cls(files, path), min(log_start_offset, first.header.base_offset)
        for batch in chain([first], batches):
            epochs.assign(batch.header.leader_epoch, end_offset)
            end_offset = batch.header.last_offset + 1
        return epochs

    @property
    def entries(self) -> list[EpochStart]:
        """All known epochs, oldest first."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> int:
        """The latest epoch; -1 when there is none."""
        return self._entries[-1].epoch if self._entries else -1

    def check_may_begin(self, epoch: int) -> None:
        """Raise ApiError where a later epoch than `epoch` exists, before a leader appends its first batch of it."""
        if epoch < self.latest_epoch:
            message = f"{self.path} has leader epoch {self.latest_epoch}; epoch {epoch} has ended"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin `epoch` at `start_offset`; forget later epochs and offsets, which contradict it."""
        if epoch == self.latest_epoch or epoch < 0:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._entries = [*kept, EpochStart(epoch, start_offset)]

    def recovered(self, found: Iterable[FoundEpoch]) -> None:
        """Assign the epochs past the recovery point. The checkpoint knows where an epoch with batches there began.

        If compaction has removed all batches of the epochs before it, it begins where the first of them did.
        """
        saved = dict(self._saved)
        for epoch, start_min, start_max in found:
            starts = [start for each, start in saved.items() if self.latest_epoch < each <= epoch]
            start_offset = min(starts) if starts and epoch in saved else start_min
            self.assign(epoch, min(max(start_offset, start_min), start_max))

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at `end_offset` or later."""
        self._entries = [entry for entry in self._entries if entry.start_offset < end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end at or before `start_offset`; the one it lies in begins there now."""
        first = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if first >= 0:
            self._entries = [EpochStart(self._entries[first].epoch, start_offset), *self._entries[first + 1 :]]

    def clear(self) -> None:
        """Forget all epochs and remove the checkpoint: the log is reset. Raises OSError.

        A save under way is removed as soon as it is written.
        """
        self._cleared = self._begun
        self._entries = []
        self._files.remove(self.path)
        self._saved = []

    def abandon(self) -> None:
        """Cancel saves under way: from now on others own the checkpoint."""
        self._abandoned = self._begun

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch`, and its end offset; (-1, -1) when that is unknown."""
        if epoch < 0 or not self._entries or epoch > self.latest_epoch:
            return UNKNOWN
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[following].start_offset
        return (epoch if following == 0 else self._entries[following - 1].epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the batch that holds `offset`; -1 when it is unknown."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else -1

    def save_call(self) -> Callable[[], None] | None:
        """Return the save for a thread to do before the recovery point moves; None where the checkpoint is right.

        It raises OSError. Several may run at the same time; an earlier one never replaces what a later one has saved.
        """
        if self._entries == self._saved:
            return None
        self._begun += 1
        return partial(self._save, self._entries, self._begun)

    def save_to(self, path: str) -> None:
        """Write a synced copy of the checkpoint. OSError."""
        self._files.write_atomically(path, encode_epochs(self._entries), sync=True)

    def _save(self, entries: list[EpochStart], number: int) -> None:
        with self._saving, suppress(FileNotFoundError):  # The log was deleted or moved meanwhile, with its directory.
            if number <= max(self._done, self._cleared, self._abandoned):
                return
            self._files.write_atomically(self.path, encode_epochs(entries), sync=True)
            self._saved, self._done = entries, number
            if number <= self._cleared:
                self._files.remove(self.path)
                self._saved = []


def _read(files: FileSystem, path: str) -> list[EpochStart]:
    try:
        return decode_epochs(files.read(path))
    except (FileNotFoundError, ValueError):
        return []
