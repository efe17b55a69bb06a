"""The start offset of each leader epoch, by which followers truncate (KIP-101, KIP-279).

The checkpoint is valid below the recovery point. Above the recovery point, recovery reads the epochs from the batches.
The checkpoint is synced before the recovery point moves, so a power failure loses no epoch below the recovery point.

An epoch keeps its start offset when compaction removes its first batches. If the start moved to the first remaining
batch, a follower would keep records of another leader.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Lock
from typing import Final, NamedTuple

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import EpochStart, decode_epochs, encode_epochs
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.segments.segment import FoundBatch
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.errors import ApiError, ErrorCode

UNKNOWN: Final = (-1, -1)


class FoundEpoch(NamedTuple):
    """An epoch that recovery has found in the batches, with the bounds of its start offset.

    `start_max` is the offset of its first remaining batch. The epoch began at `start_min` or later.
    """

    epoch: int
    start_min: int
    start_max: int


class LeaderEpochs:
    """The leader epochs and their start offsets, both rising, as stored in `leader-epoch-checkpoint`."""

    __slots__ = (
        "_abandoned",
        "_begun",
        "_cleared",
        "_done",
        "_entries",
        "_files",
        "_path",
        "_saved",
        "_saving",
        "latest_epoch",
    )

    def __init__(self, files: FileSystem, directory: str) -> None:
        self._files = files
        self.moved_to(directory)
        self._saved: list[EpochStart] = []
        """The leader epochs and start offsets in the checkpoint on the disk."""
        self._set([])
        self._saving = Lock()
        self._begun = self._done = self._cleared = self._abandoned = 0
        """The numbers that decide whether a save of the checkpoint is written.

        The saves are numbered. `_begun` is the number of the newest save, and `_done` is the number of the newest
        written save. `clear` and `abandon` cancel all saves so far: they copy `_begun` to `_cleared` or `_abandoned`. A
        save is written only if its number is above `_done`, `_cleared` and `_abandoned`.
        """

    def moved_to(self, directory: str) -> None:
        """Set the directory of the checkpoint."""
        self._path = f"{directory}/{checkpoints.LEADER_EPOCHS}"

    def _set(self, entries: list[EpochStart]) -> None:
        """Replace all epochs, and set the latest epoch (-1 without epochs)."""
        self._entries = entries
        self.latest_epoch = entries[-1].epoch if entries else -1

    def load(self, log_start_offset: int, log_end_offset: int, segments: Segments) -> None:
        """Read the checkpoint, or the log's batches if the checkpoint is missing, damaged or begins too late.

        The checkpoint begins too late if records were deleted and a power failure lost the new log start offset. Raises
        OSError and InvalidBatch.
        """
        self._saved = saved = self._read()
        self._set(saved)
        if not saved or saved[0].start_offset > log_start_offset:
            self._complete_from(segments.batches_from(log_start_offset), log_start_offset)
        self.truncate_from_end(log_end_offset)
        self.truncate_from_start(log_start_offset)

    def _read(self) -> list[EpochStart]:
        try:
            return decode_epochs(self._files.read(self._path))
        except (FileNotFoundError, ValueError):
            return []

    def _complete_from(self, batches: Iterator[FoundBatch], log_start_offset: int) -> None:
        """Replace the leader epochs from the checkpoint by the leader epochs of `batches`.

        Do nothing if the checkpoint begins at or before the first batch.
        """
        first = next(batches, None)
        if first is None or (self._saved and self._saved[0].start_offset <= first.header.base_offset):
            return
        self._saved, end_offset = [], min(log_start_offset, first.header.base_offset)
        self._set([])
        for batch in chain([first], batches):
            self.assign(batch.header.leader_epoch, end_offset)
            end_offset = batch.header.last_offset + 1

    @property
    def entries(self) -> list[EpochStart]:
        """All known epochs, oldest first."""
        return list(self._entries)

    def check_may_begin(self, epoch: int) -> None:
        """Raise ApiError if the log has a later epoch: the leader of `epoch` was replaced, and must not append."""
        if epoch < self.latest_epoch:
            message = f"{self._path} has leader epoch {self.latest_epoch}, so a leader of epoch {epoch} may not append"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add `epoch` as the latest epoch, with its start offset; do nothing if it already is the latest epoch.

        Before that, remove all epochs from `epoch` on, and all epochs that begin at `start_offset` or later.
        """
        if epoch == self.latest_epoch or epoch < 0:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._set([*kept, EpochStart(epoch, start_offset)])

    def recovered(self, found: Iterable[FoundEpoch]) -> None:
        """Add the leader epochs of the batches that recovery has found above the recovery point.

        An epoch that is in the checkpoint keeps its start offset, unless compaction has emptied the epochs directly
        before it. The epoch then begins where the first emptied epoch began.
        """
        saved = dict(self._saved)
        for epoch, start_min, start_max in found:
            starts = [start for each, start in saved.items() if self.latest_epoch < each <= epoch]
            start_offset = min(starts) if starts and epoch in saved else start_min
            self.assign(epoch, min(max(start_offset, start_min), start_max))

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at `end_offset` or later."""
        self._set([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs before the epoch of `start_offset`, and set the start of that epoch to `start_offset`."""
        first = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if first >= 0:
            self._set([EpochStart(self._entries[first].epoch, start_offset), *self._entries[first + 1 :]])

    def clear(self) -> None:
        """Forget all epochs and remove the checkpoint, because the log is reset. Raises OSError.

        A save in progress removes the file that it writes.
        """
        self._cleared = self._begun
        self._set([])
        self._files.remove(self._path)
        self._saved = []

    def abandon(self) -> None:
        """Cancel the saves in progress, because another `LeaderEpochs` writes the checkpoint from now on."""
        self._abandoned = self._begun

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `epoch`, and its end offset.

        If all known epochs are larger, `epoch` is returned with the start offset of the first known epoch. If `epoch`
        is above the latest epoch, or no epoch is known, (-1, -1) is returned.
        """
        if epoch < 0 or not self._entries or epoch > self.latest_epoch:
            return UNKNOWN
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[following].start_offset
        return (epoch if following == 0 else self._entries[following - 1].epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch of the batch at `offset`, or -1 if it is unknown."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else -1

    def save_call(self) -> Callable[[], None] | None:
        """Return a function that writes the checkpoint, or None if the checkpoint is up to date.

        A thread must run the function before the recovery point is raised. The function raises OSError. Several of
        these functions may run at the same time; an older one never replaces the checkpoint of a newer one.
        """
        if self._entries == self._saved:
            return None
        self._begun += 1
        return partial(self._save, self._entries, self._begun)

    def save_to(self, path: str) -> None:
        """Write a synced copy of the checkpoint to `path`. Raises OSError."""
        self._files.write_atomically(path, encode_epochs(self._entries), sync=True)

    def _save(self, entries: list[EpochStart], number: int) -> None:
        with self._saving, suppress(FileNotFoundError):  # The log may have been deleted or moved.
            if number <= max(self._done, self._cleared, self._abandoned):
                return
            self._files.write_atomically(self._path, encode_epochs(entries), sync=True)
            self._saved, self._done = entries, number
            if number <= self._cleared:
                self._files.remove(self._path)
                self._saved = []
