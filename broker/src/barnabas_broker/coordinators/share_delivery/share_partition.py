"""A share partition: the records of one partition as one share group sees them (KIP-932).

It is a pure state machine: time is passed in, and what it decides is returned. It holds ranges of offsets and no
records; the window is bounded by `share.partition.max.record.locks`, and with it the memory. Changes that a member asks
for are pending until they are stored, and are taken back if that fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.coordinators.share_delivery.window import Event, Range, RecordState, Window
from barnabas_broker.coordinators.share_state.share_state import StateBatch
from barnabas_core.errors import ApiError, ErrorCode

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
NEVER_MS: Final = 2**63 - 1
ISOLATED_SINCE_MIN: Final = 2
"""The lowest delivery count from which records are delivered in smaller and smaller batches."""


class Limits(NamedTuple):
    """The settings of the group that bound deliveries."""

    delivery_count: int
    record_locks: int
    lock_ms: int
    has_dead_letters: bool = False
    """True if records that are rejected or delivered too often get a dead letter."""


class FetchedBatch(msgspec.Struct, frozen=True):
    """The offsets of a batch in the log; `is_delivered` is False for markers and aborted transactions."""

    first: int
    last: int
    is_delivered: bool = True


class Wish(NamedTuple):
    """The wish of a member: how many records it can take, and how."""

    records_max: int
    batch_size: int
    is_strict: bool
    """True for the mode record_limit; otherwise the last batch is acquired as a whole."""


class Acquired(NamedTuple):
    """Records that a member has acquired."""

    first: int
    last: int
    delivery_count: int


class AcknowledgementBatch(NamedTuple):
    """An acknowledgement of a range: one type for all of its records, or one for each."""

    first: int
    last: int
    types: Sequence[int]


class ShareChange(msgspec.Struct, frozen=True):
    """A change that must be stored; `ranges` are those that wait for it."""

    ranges: Sequence[Range]
    batches: Sequence[StateBatch]


class _Piece(msgspec.Struct, frozen=True):
    within: Range
    first: int
    last: int
    type: int


class SharePartition:
    """The window of a share partition, and the decisions about it."""

    def __init__(self, start: int, stored: Iterable[StateBatch], now_ms: int) -> None:
        """Load the stored state. Offsets between stored ranges were never acquired, so they are available."""
        self.window = Window(start)
        for batch in sorted(stored):
            end = self.window.end
            if batch.last_offset <= end:
                continue
            first = max(batch.first_offset, end + 1)
            if first > end + 1:
                self.window.append(Range(end + 1, first - 1, RecordState.AVAILABLE, 0, now_ms))
            state, count = RecordState(batch.delivery_state), batch.delivery_count
            self.window.append(Range(first, batch.last_offset, state, count, now_ms))
        self.window.settle()
        self.wake_ms = NEVER_MS
        """The monotonic time at which `expire` has something to do; it may be earlier, never later."""

    def next_fetch_offset(self, limits: Limits) -> int | None:
        """Return the first offset that a member may acquire; None while the window is full of other records."""
        for each in self.window.ranges:
            if each.is_available:
                return each.first
        return None if len(self.window) >= limits.record_locks else self.window.end + 1

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Iterable[FetchedBatch],
        wish: Wish,
        now_ms: int,
        limits: Limits,
    ) -> list[Acquired]:
        """Lock records of batches that were read from `fetch_offset` on, and return them.

        Offsets without records are archived. Records that were often delivered come in small batches, so that a bad
        one does not take others with it.
        """
        taking, position = _Taking(self.window, member_id, wish, now_ms, limits), fetch_offset
        for batch in batches:
            if batch.last < position:
                continue
            first = max(batch.first, position)
            if first > position:
                self._skip(position, first - 1, now_ms, limits)
            if batch.is_delivered:
                taking.take(first, batch.last, batch.last - batch.first + 1)
            else:
                self._skip(first, batch.last, now_ms, limits)
            position = batch.last + 1
            if taking.is_done:
                break
        if taking.acquired:
            self.wake_ms = min(self.wake_ms, now_ms + limits.lock_ms)
        self.window.settle()
        return taking.acquired

    def _skip(self, first: int, last: int, now_ms: int, limits: Limits) -> None:
        """Archive offsets that have no record for a member."""
        window = self.window
        for each in window.overlapping(first, last):
            if each.is_available:
                window.isolated(each, max(each.first, first), min(each.last, last)).apply(Event.SKIP)
        if window.end < last and len(window) < limits.record_locks:
            window.append(Range(window.end + 1, last, RecordState.ARCHIVED, 0, now_ms))

    def acknowledge(
        self, member_id: str, batches: Iterable[AcknowledgementBatch], now_ms: int, limits: Limits
    ) -> ShareChange:
        """Begin the changes of one request; offsets below the start are ignored.

        Raises ApiError, and changes nothing: with INVALID_RECORD_STATE if the member has not locked one of the offsets,
        and with INVALID_REQUEST if one is behind all delivered ones, as in Kafka.
        """
        pieces: list[_Piece] = []
        for batch in batches:
            for first, last, kind in _runs(batch, self.window.start):
                self._find(member_id, first, last, kind, pieces)
        changed = []
        for piece in pieces:
            within = piece.within
            if within.last < piece.first:  # An earlier piece has cut the range.
                (within,) = self.window.overlapping(piece.first, piece.first)
            part = self.window.isolated(within, piece.first, piece.last)
            if piece.type == RENEW:
                part.deadline_ms = now_ms + limits.lock_ms
            else:
                part.is_rejected = piece.type == REJECT
                part.aim(_event(piece.type, part, limits))
                changed.append(part)
        return _change(changed)

    def _find(self, member_id: str, first: int, last: int, kind: int, pieces: list[_Piece]) -> None:
        """Add the parts of ranges from `first` to `last`. Raises ApiError if the member has not locked all of them."""
        if len(self.window) and last > self.window.end:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"the records {first} to {last} were not all delivered")
        if (pieces and first <= pieces[-1].last) or last > self.window.end:
            raise _invalid(first, last, "they were not delivered, or are acknowledged twice")
        for each in self.window.overlapping(first, last):
            if each.state is not RecordState.ACQUIRED or each.target is not None:
                raise _invalid(each.first, each.last, f"they are {(each.target or each.state).name}")
            if each.member_id != member_id:
                raise _invalid(each.first, each.last, "another member has acquired them")
            pieces.append(_Piece(each, max(each.first, first), min(each.last, last), kind))

    def expire(self, now_ms: int, limits: Limits) -> ShareChange:
        """Release records whose locks have ended."""
        return self._release(lambda each: each.deadline_ms <= now_ms, limits)

    def release_all(self, member_id: str, limits: Limits) -> ShareChange:
        """Release the records of a member whose session has ended."""
        return self._release(lambda each: each.member_id == member_id, limits)

    def _release(self, is_meant: Callable[[Range], bool], limits: Limits) -> ShareChange:
        """Release acquired records at once; the change is stored afterwards, and never taken back."""
        locked = [each for each in self.window.in_state(RecordState.ACQUIRED) if each.target is None]
        released = [each for each in locked if is_meant(each)]
        for each in released:
            each.apply(_event(RELEASE, each, limits))
            each.member_id, each.deadline_ms = "", 0
            each.is_stored = each.state is not RecordState.ARCHIVING
        change = _change(released)
        self.window.settle()
        self._set_wake()
        return change

    def _set_wake(self) -> None:
        locked = (each for each in self.window.in_state(RecordState.ACQUIRED) if each.target is None)
        self.wake_ms = min((each.deadline_ms for each in locked), default=NEVER_MS)

    def archive(self, first: int, last: int) -> ShareChange:
        """Begin the change of records that have their dead letters, or can have none."""
        parts = []
        for each in self.window.overlapping(first, last):
            if each.state is RecordState.ARCHIVING and each.target is None:
                part = self.window.isolated(each, max(each.first, first), min(each.last, last))
                part.aim(Event.HAVE_DEAD_LETTER)
                parts.append(part)
        return _change(parts)

    def waiting_for_dead_letters(self) -> Iterator[Range]:
        """Yield the ranges whose dead letters can be written, because the state archiving is stored."""
        return (each for each in self.window.in_state(RecordState.ARCHIVING) if each.target is None and each.is_stored)

    def commit(self, change: ShareChange) -> None:
        """End a change, because it is stored."""
        for batch in change.batches:
            if batch.delivery_state == RecordState.ARCHIVING:
                for each in self.window.overlapping(batch.first_offset, batch.last_offset):
                    each.is_stored = True
        for each in change.ranges:
            if each.target is not None:
                each.state, each.target = each.target, None
                each.member_id, each.deadline_ms = "", 0
        self.window.settle()

    def roll_back(self, change: ShareChange) -> None:
        """Take a change back, because it could not be stored; locks that ended meanwhile are released next."""
        for each in change.ranges:
            each.target = None
            each.is_rejected = each.is_rejected and each.state is RecordState.ARCHIVING
        self._set_wake()
        self.window.settle()

    def move_start(self, log_start_offset: int) -> bool:
        """Archive records below the start of the log; return True if there were any.

        Records that wait for their dead letters stay, because these can be written without them.
        """
        window = self.window
        if log_start_offset <= window.start:
            return False
        for each in window.overlapping(window.start, log_start_offset - 1):
            if each.target is None and each.state in (RecordState.AVAILABLE, RecordState.ACQUIRED):
                window.isolated(each, each.first, min(each.last, log_start_offset - 1)).apply(Event.SKIP)
        if window.end < log_start_offset - 1:
            window.append(Range(window.end + 1, log_start_offset - 1, RecordState.ARCHIVED))
        window.settle()
        return True

    def count(self, state: RecordState) -> int:
        """Return the number of records in a state."""
        return sum(map(len, self.window.in_state(state)))


class _Taking:
    """The acquisition of records by one request."""

    __slots__ = (
        "_begins_batch",
        "_deadline_ms",
        "_isolated_since",
        "_left",
        "_limits",
        "_member_id",
        "_now_ms",
        "_window",
        "_wish",
        "acquired",
        "is_done",
    )

    def __init__(self, window: Window, member_id: str, wish: Wish, now_ms: int, limits: Limits) -> None:
        self._window = window
        self._member_id = member_id
        self._wish = wish
        self._left = wish.records_max
        self._now_ms = now_ms
        self._deadline_ms = now_ms + limits.lock_ms
        self._limits = limits
        self._isolated_since = max(ISOLATED_SINCE_MIN, (limits.delivery_count + 1) // 2)
        self._begins_batch = False
        self.acquired: list[Acquired] = []
        self.is_done = wish.records_max <= 0

    def take(self, first: int, last: int, batch_records: int) -> None:
        """Acquire the records of a batch from `first` to `last`."""
        self._begins_batch = True
        for each in self._window.overlapping(first, min(last, self._window.end)):
            if each.is_available and not self.is_done:
                self._take_again(each, max(each.first, first), min(each.last, last), batch_records)
        if not self.is_done:
            self._take_new(max(first, self._window.end + 1), last)
        if self._left <= 0:
            self.is_done = True

    def _take_again(self, within: Range, first: int, last: int, batch_records: int) -> None:
        room = self._left if self._wish.is_strict else NEVER_MS
        isolated = self._isolated_max(within.delivery_count, batch_records)
        if isolated is not None:
            if self.acquired:
                self.is_done = True
                return
            room, self.is_done = min(room, isolated), True
        part = self._window.isolated(within, first, min(last, first + room - 1))
        part.apply(Event.ACQUIRE)
        part.delivery_count += 1
        part.member_id, part.deadline_ms = self._member_id, self._deadline_ms
        self._add(part.first, part.last, part.delivery_count)

    def _isolated_max(self, delivery_count: int, batch_records: int) -> int | None:
        """Return the number of records that are delivered together after so many deliveries; None for all."""
        limit = self._limits.delivery_count
        if limit <= ISOLATED_SINCE_MIN or delivery_count < self._isolated_since:
            return None
        if delivery_count >= limit - 1:
            return 1
        return max(batch_records >> (delivery_count - self._isolated_since + 1), 1)

    def _take_new(self, first: int, last: int) -> None:
        window, room = self._window, self._left if self._wish.is_strict else NEVER_MS
        end = min(last, first + room - 1, window.start + self._limits.record_locks - 1)
        if first <= end:
            acquired = Range(first, end, RecordState.AVAILABLE, 0, self._now_ms)
            acquired.apply(Event.ACQUIRE)
            acquired.delivery_count = 1
            acquired.member_id, acquired.deadline_ms = self._member_id, self._deadline_ms
            window.append(acquired)
            self._add(first, end, 1)
        if end < last:
            self.is_done = True

    def _add(self, first: int, last: int, delivery_count: int) -> None:
        """Add to what was acquired; ranges end where a batch ends, once they have `batch_size` records."""
        self._left -= last - first + 1
        previous = self.acquired[-1] if self.acquired else None
        begins, self._begins_batch = self._begins_batch, False
        joins = previous is not None and previous.last + 1 == first and previous.delivery_count == delivery_count
        if previous is None or not joins or (begins and previous.last - previous.first + 1 >= self._wish.batch_size):
            self.acquired.append(Acquired(first, last, delivery_count))
        else:
            self.acquired[-1] = previous._replace(last=last)


def _runs(batch: AcknowledgementBatch, start: int) -> Iterable[tuple[int, int, int]]:
    """Yield the ranges of a batch with equal types, as far as they are not below `start`."""
    if batch.last < start:
        return
    if len(batch.types) == 1:
        yield max(batch.first, start), batch.last, batch.types[0]
        return
    first = batch.first
    for kind, run in groupby(batch.types):
        end = first + sum(1 for _ in run)
        if end > start:
            yield max(first, start), end - 1, kind
        first = end


def _event(kind: int, part: Range, limits: Limits) -> Event:
    """Return the event of an acknowledgement; a delivery that was the last one does not make records available."""
    if kind == ACCEPT:
        return Event.ACCEPT
    if kind == GAP:
        return Event.SKIP
    if kind == RELEASE and part.delivery_count < limits.delivery_count:
        return Event.RELEASE
    return Event.NEED_DEAD_LETTER if limits.has_dead_letters else Event.ARCHIVE


def _change(ranges: Sequence[Range]) -> ShareChange:
    batches: list[StateBatch] = []
    for each in ranges:
        state = each.state if each.target is None else each.target
        last = batches[-1] if batches else None
        if last and last.last_offset + 1 == each.first and last[2:] == (state, each.delivery_count):
            batches[-1] = last._replace(last_offset=each.last)
        else:
            batches.append(StateBatch(each.first, each.last, int(state), each.delivery_count))
    return ShareChange(ranges, batches)


def _invalid(first: int, last: int, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_RECORD_STATE, f"the records {first} to {last} cannot be acknowledged, because {why}"
    )
