"""The idempotent producers of one log: loaded at their first use, kept in snapshots, taken back by a truncation.

A log that was truncated takes no appends while they are held back: until its lower recovery point is in the checkpoint,
and until what the truncation has cut of a producer was looked up in the log (docs/decisions/truncation.md).
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.producer_state.producer_snapshot import SnapshotEntry
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.producer_state.producers import UNKNOWN_OFFSET, ProducerCount, ProducerStates
from barnabas_broker.storage.segments.batch_scan import SCAN_CHUNK_BYTES, scan_batches
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.record_batch import BatchHeader
from barnabas_core.errors import ApiError, ErrorCode

FIRST_STRETCH_BYTES: Final = 256 * 1024
"""What is looked into first of the end of a log; then twice as much each time."""


class Stretch(NamedTuple):
    """Whole batches in a segment's file, and an offset that none of them is below."""

    file: LogFile
    start: int
    end: int
    offset_min: int


class ProducerLookup:
    """Finds what some producers wrote last, from the log's end backwards. `run` it in a thread: it touches no state."""

    def __init__(
        self,
        log_dir: str,
        directory: str,
        lacking: frozenset[int],
        stretches: Iterable[Stretch],
        entries: Iterable[SnapshotEntry],
    ) -> None:
        self.log_dir = log_dir
        self.directory = directory
        self.lacking = lacking
        self.found = ProducerStates(ProducerCount())
        self._stretches = stretches
        self._entries = entries
        """What was known before the first of the stretches."""

    @disk_access
    def run(self) -> None:
        """Blocks for as long as it takes to get back to the oldest of the batches that are looked for."""
        wanted = set(self.lacking)
        headers: list[BatchHeader] = []
        for file, start, end, offset_min in self._stretches:
            batches = scan_batches(file, start, end, offset_min, chunk_bytes=SCAN_CHUNK_BYTES)
            seen = [batch.header for batch in batches if batch.header.producer_id in self.lacking]
            headers[:0] = seen
            wanted -= {header.producer_id for header in seen}
            if not wanted:
                break
        entries = [entry for entry in self._entries if entry.producer_id in wanted]
        self.found = ProducerStates(ProducerCount(), entries)
        for header in headers:
            self.found.record(header, header.base_offset, header.max_timestamp_ms)
        for producer in self.found.producers.values():  # What it wrote before was not looked for.
            producer.first_offset = UNKNOWN_OFFSET


class LogProducers:
    """`states` is None before the first use, and while they are held back. Raises OSError, InvalidBatch, ApiError."""

    __slots__ = (
        "_count",
        "_held",
        "_is_checkpointed",
        "_lacking",
        "_segments",
        "snapshots",
        "states",
    )

    def __init__(self, segments: Segments, snapshots: ProducerSnapshots, count: ProducerCount) -> None:
        self.states: ProducerStates | None = None
        self._held: ProducerStates | None = None
        self._lacking: frozenset[int] = frozenset()
        self._is_checkpointed = True
        self._segments = segments
        self.snapshots = snapshots
        self._count = count

    @property
    def are_held_back(self) -> bool:
        """Whether the log takes no appends for now."""
        return self._held is not None

    @property
    def await_checkpoint(self) -> bool:
        """Whether the log was cut below its recovery point, and no checkpoint tells that yet."""
        return not self._is_checkpointed

    def check_not_held_back(self) -> None:
        """Raises ApiError while the producers are not known yet."""
        if self._held is not None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                "the log is recovering after a truncation, or is new, and takes no appends yet; try again",
            )

    def load(self, log_start_offset: int, log_end_offset: int) -> ProducerStates:
        """From the newest snapshot and the batches behind it; after a clean shutdown there are none behind it."""
        self.check_not_held_back()
        if self.states is None:
            offset, entries = self.snapshots.load(log_end_offset) or (log_start_offset, [])
            states = ProducerStates(self._count, entries)
            for batch in self._segments.batches_from(offset):
                header = batch.header
                states.record(header, header.base_offset, header.max_timestamp_ms)
            self.states = states
        return self.states

    def write_snapshot(self, offset: int) -> None:
        """Of what is known, at the log's end; nothing while that is nothing, or held back."""
        if self.states is not None:
            self.snapshots.write(offset, self.states.snapshot())

    def clear(self) -> None:
        """Forgets all producers: the log begins anew."""
        self.snapshots.clear()
        self.states, self._held = None, ProducerStates(self._count)
        self._lacking = frozenset()

    def truncate(self, end_offset: int) -> None:
        """Go back to where the log will be cut. What the last few batches do not tell has to be looked up."""
        self.snapshots.remove_after(end_offset)
        known = self._held or self.states
        assert known is not None, "they are loaded before the log is cut"
        self._held, self.states = known, None
        self._lacking |= known.truncate(end_offset)

    def hold_back(self, *, until_checkpointed: bool) -> bool:
        """After a truncation: whether there is something to wait for, be it from the one before."""
        self._held, self.states = self._held or self.states, None
        self._is_checkpointed = self._is_checkpointed and not until_checkpointed
        return not self._release()

    def checkpointed(self) -> None:
        """The recovery point of now is in the checkpoint."""
        self._is_checkpointed = True
        self._release()

    def found(self, lookup: ProducerLookup) -> None:
        """Takes in what a lookup found that has run."""
        if self._held is not None:
            self._held.replace(lookup.lacking, lookup.found)
        self._lacking = frozenset()
        self._release()

    def _release(self) -> bool:
        if self._is_checkpointed and not self._lacking:
            self.states, self._held = self._held, None
            return True
        return False

    def lookup(self, log_dir: str, directory: str, log_start_offset: int, log_end_offset: int) -> ProducerLookup | None:
        """What has to be looked up, if anything has."""
        if not self._lacking:
            return None
        offset, entries = self.snapshots.load(log_end_offset) or (log_start_offset, [])
        return ProducerLookup(log_dir, directory, self._lacking, list(self._stretches(offset)), entries)

    def _stretches(self, offset: int) -> Iterable[Stretch]:
        """All from `offset` on, the newest first."""
        for segment in reversed(self._segments.starting_at(offset)):
            found = segment.find(offset)
            oldest, end, length = (
                found.position if found else segment.size_bytes,
                segment.size_bytes,
                FIRST_STRETCH_BYTES,
            )
            while end > oldest:
                start = max(segment.indexed_position(end - length), oldest)
                yield Stretch(segment.file, start, end, segment.base_offset)
                end, length = start, 2 * length
