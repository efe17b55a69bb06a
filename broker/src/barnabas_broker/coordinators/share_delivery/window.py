"""The window of a share partition: its records that are not final yet, as ranges of offsets.

A range has one state and one delivery count, so 500 records that one member has acquired take one object. The ranges
follow each other without holes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from enum import Enum, IntEnum, auto
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

_first: Final = attrgetter("first")


class RecordState(IntEnum):
    """The state of a record in a share group, with Kafka's numbers; ACQUIRED is never stored."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


FINAL: Final = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class Event(Enum):
    """The events that change the state of a record."""

    ACQUIRE = auto()
    """A member gets the record, and locks it."""
    ACCEPT = auto()
    """The member has processed the record."""
    RELEASE = auto()
    """The member gives the record back, loses its lock, or leaves."""
    ARCHIVE = auto()
    """The record is rejected or was delivered too often, and gets no dead letter."""
    NEED_DEAD_LETTER = auto()
    """The record is rejected or was delivered too often, and gets a dead letter."""
    HAVE_DEAD_LETTER = auto()
    """The dead letter was written, or the record can have none."""
    SKIP = auto()
    """The log no longer has the record, or its transaction was aborted."""


TRANSITIONS: Final[Mapping[tuple[RecordState, Event], RecordState]] = {
    (RecordState.AVAILABLE, Event.ACQUIRE): RecordState.ACQUIRED,
    (RecordState.AVAILABLE, Event.SKIP): RecordState.ARCHIVED,
    (RecordState.ACQUIRED, Event.ACCEPT): RecordState.ACKNOWLEDGED,
    (RecordState.ACQUIRED, Event.RELEASE): RecordState.AVAILABLE,
    (RecordState.ACQUIRED, Event.ARCHIVE): RecordState.ARCHIVED,
    (RecordState.ACQUIRED, Event.NEED_DEAD_LETTER): RecordState.ARCHIVING,
    (RecordState.ACQUIRED, Event.SKIP): RecordState.ARCHIVED,
    (RecordState.ARCHIVING, Event.HAVE_DEAD_LETTER): RecordState.ARCHIVED,
}
"""The states after each event; an event that this table does not have in a state is a bug."""


class Range(msgspec.Struct):
    """The records from `first` to `last`, which have the same state."""

    first: int
    last: int
    state: RecordState
    delivery_count: int = 0
    since_ms: int = 0
    """The monotonic time at which the first of the records came into the window."""
    member_id: str = ""
    """The member that has acquired the records."""
    deadline_ms: int = 0
    """The monotonic time at which the lock of acquired records ends."""
    is_rejected: bool = False
    """True if a member has rejected the records; they were delivered too often otherwise."""
    target: RecordState | None = None
    """The state that the records get when it is stored; None while nothing is being stored."""
    is_stored: bool = True
    """True unless the records wait for dead letters, and that is not stored yet."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def is_settled(self) -> bool:
        """True if the records are final, and nothing is being stored."""
        return self.target is None and self.state in FINAL

    @property
    def is_available(self) -> bool:
        """True if a member may acquire the records."""
        return self.target is None and self.state is RecordState.AVAILABLE

    def apply(self, event: Event) -> None:
        """Change the state at once."""
        self.state = TRANSITIONS[self.state, event]

    def aim(self, event: Event) -> None:
        """Begin the change of the state, which ends when the new state is stored."""
        self.target = TRANSITIONS[self.state, event]

    def joins(self, following: "Range") -> bool:
        """True if both ranges can be one."""
        if self.target is not None or following.target is not None or self.state is not following.state:
            return False
        if self.state in FINAL:
            return True
        return (
            self.delivery_count == following.delivery_count
            and self.member_id == following.member_id
            and self.deadline_ms == following.deadline_ms
            and self.is_rejected == following.is_rejected
            and self.is_stored == following.is_stored
        )


class Window:
    """The ranges of a share partition, from the first record that is not final to the last one that was acquired."""

    __slots__ = ("ranges", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        """The offset below which all records are final."""
        self.ranges: list[Range] = []

    @property
    def end(self) -> int:
        """The last offset of the window; `start - 1` if the window is empty."""
        return self.ranges[-1].last if self.ranges else self.start - 1

    def __len__(self) -> int:
        return self.end - self.start + 1

    def overlapping(self, first: int, last: int) -> list[Range]:
        """Return the ranges that have an offset from `first` to `last`."""
        place = max(bisect_right(self.ranges, first, key=_first) - 1, 0)
        found = []
        while place < len(self.ranges) and self.ranges[place].first <= last:
            if self.ranges[place].last >= first:
                found.append(self.ranges[place])
            place += 1
        return found

    def isolated(self, within: Range, first: int, last: int) -> Range:
        """Cut `within` so that one range has its records from `first` to `last`, and return that range."""
        if first > within.first:
            within = self._cut(within, first)
        if last < within.last:
            self._cut(within, last + 1)
        return within

    def _cut(self, whole: Range, offset: int) -> Range:
        """Cut a range in two before `offset`, and return the second part."""
        second = replace(whole, first=offset)
        whole.last = offset - 1
        self.ranges.insert(bisect_right(self.ranges, whole.first, key=_first), second)
        return second

    def append(self, added: Range) -> Range:
        """Add a range at the end; return the range that has its records, which may be the previous last one."""
        if self.ranges and self.ranges[-1].joins(added):
            self.ranges[-1].last = added.last
            return self.ranges[-1]
        self.ranges.append(added)
        return added

    def settle(self) -> None:
        """Join ranges that can be one, and move the start behind final records."""
        joined: list[Range] = []
        for each in self.ranges:
            if joined and joined[-1].joins(each):
                joined[-1].last = each.last
                joined[-1].since_ms = min(joined[-1].since_ms, each.since_ms)
            else:
                joined.append(each)
        settled = 0
        while settled < len(joined) and joined[settled].is_settled:
            self.start = joined[settled].last + 1
            settled += 1
        self.ranges = joined[settled:]

    def final_count(self) -> int:
        """Return the number of records that are final, or will be when what is being stored is stored."""
        return sum(len(each) for each in self.ranges if (each.state if each.target is None else each.target) in FINAL)

    def in_state(self, state: RecordState) -> Iterator[Range]:
        """Yield the ranges in a state."""
        return (each for each in self.ranges if each.state is state)
