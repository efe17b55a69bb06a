"""Which leader epoch began at which offset: what followers truncate by (KIP-101, KIP-279)."""

from bisect import bisect_right
from contextlib import suppress
from typing import Final

from barnabas_broker.storage.checkpoints import EpochStart, decode_epochs, encode_epochs
from barnabas_broker.storage.files import FileSystem

UNKNOWN: Final = (-1, -1)


class LeaderEpochs:
    """Epochs and their start offsets, both rising, kept in `leader-epoch-checkpoint`."""

    __slots__ = ("_entries", "_files", "_is_written", "path")

    def __init__(self, files: FileSystem, path: str, entries: list[EpochStart]) -> None:
        self._files = files
        self.path = path
        self._entries = entries
        self._is_written = True

    @classmethod
    def load(cls, files: FileSystem, path: str) -> "LeaderEpochs":
        """From the checkpoint; empty when it is missing or damaged, for the log's batches hold the epochs too."""
        try:
            return cls(files, path, decode_epochs(files.read(path)))
        except (FileNotFoundError, ValueError):
            return cls(files, path, [])

    @property
    def entries(self) -> list[EpochStart]:
        """All known epochs, oldest first."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> int:
        """-1 when there is none."""
        return self._entries[-1].epoch if self._entries else -1

    def assign(self, epoch: int, start_offset: int) -> None:
        """The batch at `start_offset` is of `epoch`; what contradicts it, later epochs or offsets, is forgotten."""
        if epoch == self.latest_epoch or epoch < 0:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._write([*kept, EpochStart(epoch, start_offset)])

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at `end_offset` or later."""
        self._keep([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that end at or before `start_offset`; the one it lies in begins there now."""
        first = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset) - 1
        if first >= 0:
            self._keep([EpochStart(self._entries[first].epoch, start_offset), *self._entries[first + 1 :]])

    def clear(self) -> None:
        """Forget all."""
        self._keep([])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ends; (-1, -1) when that is unknown."""
        if epoch < 0 or not self._entries or epoch > self.latest_epoch:
            return UNKNOWN
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        end_offset = self._entries[following].start_offset
        return (epoch if following == 0 else self._entries[following - 1].epoch), end_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of the batch that holds `offset`; -1 when it is unknown."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else -1

    def _keep(self, entries: list[EpochStart]) -> None:
        if entries != self._entries:
            self._write(entries)

    def _write(self, entries: list[EpochStart]) -> None:
        """Without fsync: after a crash recovery reads the newest epochs from the batches again."""
        self._entries = entries
        self._is_written = False
        with suppress(OSError):  # A full disk must not keep a log from loading; `flush` tries again.
            self.flush()

    def flush(self) -> None:
        """Write the checkpoint if that is still to be done: before the recovery point moves. OSError."""
        if not self._is_written:
            self._files.write_atomically(self.path, encode_epochs(self._entries), sync=False)
            self._is_written = True
