"""The start offset of each leader epoch of a log, and the states of its producers.

Followers truncate by the epochs (KIP-101, KIP-279). Their checkpoint is valid below the recovery point. Above the
recovery point, recovery reads the epochs from the batches. The checkpoint is synced before the recovery point moves, so
a power failure loses no epoch below the recovery point. An epoch keeps its start offset when compaction removes its
first batches. If the start moved to the first remaining batch, a follower would keep records of another leader.

The producer states are loaded with the log, and again after a truncation. After a truncation, the log refuses appends
until two things are done: the checkpoint has the lowered recovery point, and the producer states are loaded from the
newest remaining snapshot (docs/explanation/storage-guarantees.md).
"""

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import Lock
from typing import Final, NamedTuple

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import EpochStart, ProducerSnapshots, decode_epochs, encode_epochs
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.producer_state import ProducerCount, ProducerStates
from barnabas_broker.storage.segments.segment import FoundBatch, Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.framing import Buffer
from barnabas_broker.wire.key_values import decode_marker
from barnabas_broker.wire.record_batch import CONTROL_BIT, BatchHeader
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


def control_batches(run: memoryview, headers: Sequence[BatchHeader]) -> Iterator[memoryview]:
    """Yield, for each control batch in `run`, the bytes from the start of the batch to the end of `run`.

    `run` holds consecutive batches, and `headers` are the headers of all these batches.
    """
    position = 0
    for header in headers:
        if header.producer_id >= 0 and header.attributes & CONTROL_BIT:
            yield run[position:]
        position += header.size_bytes


def record_control(states: ProducerStates, segment: Segment, batch: Buffer, header: BatchHeader) -> None:
    """Apply the transaction marker in a control batch; add an aborted transaction to the transaction index."""
    marker = decode_marker(batch, header)
    if marker is not None:
        aborted = states.record_marker(marker, header.base_offset, header.max_timestamp_ms)
        if aborted is not None:
            segment.transactions.add(aborted)


WRITTEN_AT_ONCE_MAX: Final = 1_000
"""The number of producers up to which the event loop writes a snapshot, which takes some milliseconds."""

_logger: Final = logging.getLogger(__name__)

Replayed = tuple[Segment, Iterable[FoundBatch]]
"""A segment, and those of its batches that are newer than the latest producer snapshot."""


class ProducerReplay:
    """The producer states of a snapshot, and the log's batches after it, which `run` applies to these states."""

    def __init__(self, log_dir: str, directory: str, states: ProducerStates, segments: Sequence[Replayed]) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.states = states
        self._segments = segments

    @disk_access
    def run(self) -> None:
        """Apply the batches up to the log's end to `states`. The call blocks. Raises StorageError."""
        _replay(self.states, self._segments)


class LogProducers:
    """The producer states of a log. `states` is None while the log refuses appends.

    Methods raise OSError, InvalidBatch and ApiError.
    """

    __slots__ = ("_count", "_expiration_ms", "_segments", "are_held_back", "await_checkpoint", "snapshots", "states")

    def __init__(
        self, segments: Segments, snapshots: ProducerSnapshots, count: ProducerCount, expiration_ms: int
    ) -> None:
        self.states: ProducerStates | None = None
        self.are_held_back = False
        """True while the log refuses appends."""
        self.await_checkpoint = False
        """True if the checkpoints have to be rewritten before the log accepts appends."""
        self._segments = segments
        self.snapshots = snapshots
        self._count = count
        self._expiration_ms = expiration_ms

    def take_over(self, states: ProducerStates) -> None:
        """Set the producers to `states`, which belonged to the log from which this log was copied."""
        self.states = states

    def check_not_held_back(self) -> None:
        """Raise ApiError while the log refuses appends."""
        if self.are_held_back:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the log is recovering after a truncation, or is new, and takes no appends yet; try again",
            )

    def required(self) -> ProducerStates:
        """Return the producers. Raises ApiError while the log refuses appends."""
        self.check_not_held_back()
        assert self.states is not None, "a log that accepts appends has loaded its producers"
        return self.states

    def load(self, log_start_offset: int, log_end_offset: int) -> None:
        """Load the newest snapshot, and replay the batches after it.

        A clean shutdown leaves no batches after the newest snapshot.
        """
        offset, states = self._from_snapshot(log_start_offset, log_end_offset)
        if offset < log_end_offset:
            _replay(states, self._batches_from(offset))
        self.states = states

    def rebuild_damaged_indexes(self, log_start_offset: int) -> None:
        """Rebuild each transaction index that has an entry that cannot be true from the control batches of its segment.

        Without such an entry, consumers with `read_committed` would get aborted records. The call reads the log.
        """
        for segment in [each for each in self._segments if each.transactions and each.transactions.check()]:
            path = segment.path(checkpoints.TXN_INDEX)
            _logger.warning("%s has an entry that cannot be true: it is rebuilt from the segment", path)
            segment.transactions.clear()
            offset, entries = self.snapshots.newest_up_to(segment.base_offset) or (log_start_offset, [])
            until = [each for each in self._batches_from(offset) if each[0].base_offset <= segment.base_offset]
            _replay(ProducerStates(ProducerCount(), entries), until)
            segment.transactions.flush()

    def replay(self, log_dir: str, directory: str, log_start_offset: int, log_end_offset: int) -> ProducerReplay:
        """Return a `ProducerReplay`, which rebuilds the producer states in a thread; call `reloaded` afterwards."""
        offset, states = self._from_snapshot(log_start_offset, log_end_offset)
        return ProducerReplay(log_dir, directory, states, list(self._batches_from(offset)))

    def _batches_from(self, offset: int) -> Iterator[Replayed]:
        segments = (each for each in self._segments.starting_at(offset) if each.size_bytes)
        return ((segment, segment.batches_from(offset)) for segment in segments)

    def _from_snapshot(self, log_start_offset: int, log_end_offset: int) -> tuple[int, ProducerStates]:
        offset, entries = self.snapshots.load(log_end_offset) or (log_start_offset, [])
        return offset, ProducerStates(self._count, entries)

    def write_snapshot(self, offset: int) -> None:
        """Write a snapshot at the log's end, unless the producers are not loaded or the log never had a record."""
        if self.states is not None and offset > 0:
            self.snapshots.write(offset, self.states.snapshot())

    def write_snapshot_soon(self, offset: int) -> None:
        """Write a snapshot at the log's end; if it is large, the next sync of the log writes it in a thread."""
        states = self.required()
        if len(states.producers) <= WRITTEN_AT_ONCE_MAX:
            self.snapshots.write(offset, states.snapshot())
        else:
            self.snapshots.write_late(offset, states.snapshot())

    def expire(self, now_ms: int) -> None:
        """Forget the producers without an open transaction that have not written for `producer.id.expiration.ms`."""
        if self.states is not None:
            self.states.expire(now_ms, self._expiration_ms)

    def clear(self) -> None:
        """Forget all producers and remove their snapshots, because the log was emptied."""
        self.states = ProducerStates(self._count)
        self.snapshots.clear()

    def truncate(self, end_offset: int) -> None:
        """Remove snapshots above `end_offset`; refuse appends until the producers, if any, are loaded again."""
        if self.states is None or self.states.producers:
            self.hold_back()
        self.snapshots.remove_after(end_offset)

    def hold_back(self, *, until_checkpointed: bool = False) -> None:
        """Forget the producers, and refuse appends until they are loaded again.

        With `until_checkpointed`, the checkpoints have to be rewritten before the log accepts appends.
        """
        self.states, self.are_held_back = None, True
        self.await_checkpoint |= until_checkpointed

    def reloaded(self, replay: ProducerReplay) -> None:
        """Use the producer states that `replay` has rebuilt, and accept appends again.

        If the attribute `await_checkpoint` is True, the checkpoints must have been rewritten before this call.
        """
        self.states, self.are_held_back, self.await_checkpoint = replay.states, False, False


def _replay(states: ProducerStates, segments: Iterable[Replayed]) -> None:
    """Apply the batches to `states`, and restore transaction index entries that a crash has lost."""
    for segment, batches in segments:
        for position, header in batches:
            if header.attributes & CONTROL_BIT:
                record_control(states, segment, segment.file.read_at(position, header.size_bytes), header)
            else:
                states.record(header, header.base_offset, header.max_timestamp_ms)
