"""The idempotent producers of one log: loaded at their first use, kept in snapshots, loaded again after a truncation.

A truncated log takes no appends while they are held back: until its lower recovery point is in the checkpoint, and
until they are loaded from the last snapshot that is left (docs/explanation/storage-guarantees.md).
"""

from collections.abc import Iterable, Iterator, Sequence

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.producer_state.control_batches import record_control
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.producer_state.producers import ProducerCount, ProducerStates
from barnabas_broker.storage.segments.batch_scan import FoundBatch
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.record_batch import CONTROL_BIT
from barnabas_core.errors import ApiError, ErrorCode

Replayed = tuple[Segment, Iterable[FoundBatch]]
"""A segment, and its batches after the snapshot."""


class ProducerReplay:
    """Adds the batches behind a snapshot to its producers. `run` it in a thread: it changes nothing of the log."""

    def __init__(self, log_dir: str, directory: str, states: ProducerStates, segments: Sequence[Replayed]) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.states = states
        self._segments = segments

    @disk_access
    def run(self) -> None:
        """Bring `states` to the log's end. Blocks. Raises StorageError."""
        _replay(self.states, self._segments)


class LogProducers:
    """`states` is None before the first use, and while they are held back. Raises OSError, InvalidBatch, ApiError."""

    __slots__ = ("_count", "_segments", "are_held_back", "await_checkpoint", "snapshots", "states")

    def __init__(self, segments: Segments, snapshots: ProducerSnapshots, count: ProducerCount) -> None:
        self.states: ProducerStates | None = None
        self.are_held_back = False
        """True if the log takes no appends for now."""
        self.await_checkpoint = False
        """True if the log was cut below its recovery point, and the checkpoint still has the higher one."""
        self._segments = segments
        self.snapshots = snapshots
        self._count = count

    def check_not_held_back(self) -> None:
        """Raise ApiError while the producers are not known yet."""
        if self.are_held_back:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the log is recovering after a truncation, or is new, and takes no appends yet; try again",
            )

    def load(self, log_start_offset: int, log_end_offset: int) -> ProducerStates:
        """Load from the newest snapshot and the batches behind it; after a clean shutdown there are none behind it."""
        self.check_not_held_back()
        if self.states is None:
            offset, states = self._from_snapshot(log_start_offset, log_end_offset)
            _replay(states, self._batches_from(offset))
            self.states = states
        return self.states

    def replay(self, log_dir: str, directory: str, log_start_offset: int, log_end_offset: int) -> ProducerReplay:
        """Return the replay that a thread must run before `reloaded`; files are opened here, and a new log has none."""
        offset, states = self._from_snapshot(log_start_offset, log_end_offset)
        return ProducerReplay(log_dir, directory, states, list(self._batches_from(offset)))

    def _batches_from(self, offset: int) -> Iterator[Replayed]:
        segments = (each for each in self._segments.starting_at(offset) if each.size_bytes)
        return ((segment, segment.batches_from(offset)) for segment in segments)

    def _from_snapshot(self, log_start_offset: int, log_end_offset: int) -> tuple[int, ProducerStates]:
        offset, entries = self.snapshots.load(log_end_offset) or (log_start_offset, [])
        return offset, ProducerStates(self._count, entries)

    def write_snapshot(self, offset: int) -> None:
        """Write a snapshot at the log's end; none before the first use, or while held back."""
        if self.states is not None:
            self.snapshots.write(offset, self.states.snapshot())

    def clear(self) -> None:
        """Forget all producers: the log starts again from nothing."""
        self.states = ProducerStates(self._count)
        self.snapshots.clear()

    def truncate(self, end_offset: int) -> None:
        """Hold the producers back until they are loaded again, unless the log knew none."""
        if self.states is None or self.states.producers:
            self.hold_back()
        self.snapshots.remove_after(end_offset)

    def hold_back(self, *, until_checkpointed: bool = False) -> None:
        """Take no appends until the producers are loaded again, and the checkpoints are written before that."""
        self.states, self.are_held_back = None, True
        self.await_checkpoint |= until_checkpointed

    def reloaded(self, replay: ProducerReplay) -> None:
        """Take appends again: the checkpoints are written, and the replay has run."""
        self.states, self.are_held_back, self.await_checkpoint = replay.states, False, False


def _replay(states: ProducerStates, segments: Iterable[Replayed]) -> None:
    """Apply the batches, and restore the entries of transaction indexes that a crash has lost."""
    for segment, batches in segments:
        for position, header in batches:
            if header.attributes & CONTROL_BIT:
                record_control(states, segment, segment.file.read_at(position, header.size_bytes), header)
            else:
                states.record(header, header.base_offset, header.max_timestamp_ms)
