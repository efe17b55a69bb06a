"""The producer states of one log, which are loaded with the log and again after a truncation.

After a truncation, the log refuses appends until two things are done: the checkpoint has the lowered recovery point,
and the producer states are loaded from the newest remaining snapshot (docs/explanation/storage-guarantees.md).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.producer_state.producers import ProducerCount, ProducerStates
from barnabas_broker.storage.segments.segment import FoundBatch, Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.framing import Buffer
from barnabas_broker.wire.key_values import decode_marker
from barnabas_broker.wire.record_batch import CONTROL_BIT, BatchHeader
from barnabas_core.errors import ApiError, ErrorCode


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
