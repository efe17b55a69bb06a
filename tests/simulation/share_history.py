"""The observations of the members of a share group, with checks whether they are possible.

Violations begin with their names: locked, counts, final, changed, aborted, unfinished, letters, doubled, start, stuck.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
NONE: Final = 0
REFUSED: Final = (42, 121)
"""INVALID_REQUEST and INVALID_RECORD_STATE: nothing was acknowledged."""


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int


class Letter(NamedTuple):
    """A dead letter: what its headers say, and its value."""

    place: Place
    delivery_count: int
    is_rejected: bool
    value: bytes | None


class Incarnation(NamedTuple):
    """The share partition in the memory of a leader, and the member's session there; the broker's own objects."""

    led: object
    session: object


@dataclass(eq=False)
class Delivery:
    """A record that a member was given."""

    place: Place
    member_id: str
    count: int
    sent_s: float
    """The time at which the member sent its request: the lock began later."""
    received_s: float
    at: Incarnation | None = field(repr=False)
    """None if the leader may have changed while the response was under way."""
    is_over: bool = False
    """True if the member may have given up its lock."""


class ShareHistory:
    """The history of one share group. `is_open` says whether a session still is the same; `lock_s` is a lock's time."""

    def __init__(
        self, violation: Callable[[str], object], lock_s: float, count_limit: int, is_open: Callable[[object], bool]
    ) -> None:
        self._say = violation
        self._lock_s = lock_s
        self._count_limit = count_limit
        self._is_open = is_open
        self.is_lossy = False
        """True once the loss of records was accepted."""
        self.values: dict[Place, bytes] = {}
        self.deliveries = 0
        self._given: defaultdict[Place, list[Delivery]] = defaultdict(list)
        self._in_doubt: Counter[tuple[Place, int]] = Counter()
        """The acknowledgements of holders whose outcome nobody knows, by type."""
        self._done: dict[tuple[Place, int], float] = {}
        """The times at which acknowledgements of holders were answered."""
        self._released: dict[Place, tuple[int, float]] = {}
        """The delivery counts of records whose release was answered, and when."""
        self._again: set[Delivery] = set()
        """The deliveries that were acknowledged twice: the second time the record may be below the start."""
        self.letters: dict[Place, Letter] = {}

    @property
    def acknowledged_count(self) -> int:
        """Return the number of records whose acceptance was answered."""
        return sum(kind == ACCEPT for _, kind in self._done)

    def given(self) -> Set[Place]:
        """Return the places of all records that members were given."""
        return self._given.keys()

    def topics(self) -> set[str]:
        """Return the topics of these records."""
        return {place.topic for place in self._given}

    def violation(self, what: str) -> None:
        """Note a violation, unless the loss of records was accepted."""
        if not self.is_lossy:
            self._say(what)

    def delivered(self, delivery: Delivery, value: bytes) -> None:
        """Note a record that a member was given, and check whether it might be."""
        place = delivery.place
        self.deliveries += 1
        if self.values.setdefault(place, value) != value:
            self.violation(f"changed: {place} was {self.values[place]!r}, and is delivered as {value!r}")
        self._check_final(delivery)
        released, released_s = self._released.get(place, (0, 0.0))
        if delivery.sent_s >= released_s and delivery.count <= released:
            self.violation(f"counts: {place} was released after delivery {released}, and {delivery.count} comes")
        for earlier in self._given[place]:
            self._check_against(earlier, delivery)
        self._given[place].append(delivery)

    def _check_final(self, delivery: Delivery) -> None:
        for kind in (ACCEPT, REJECT):
            done_s = self._done.get((delivery.place, kind))
            if done_s is not None and delivery.sent_s >= done_s:
                what = "accepted" if kind == ACCEPT else "rejected"
                self.violation(f"final: {delivery.place} was {what} and is delivered again: {delivery}")

    def _check_against(self, earlier: Delivery, later: Delivery) -> None:
        if earlier.at is None or later.at is None or earlier.at.led is not later.at.led:
            return
        if earlier.received_s <= later.sent_s and later.count <= earlier.count:
            self.violation(f"counts: {later} comes after {earlier}")
        has_lock = later.received_s < earlier.sent_s + self._lock_s and self._is_open(earlier.at.session)
        if has_lock and not earlier.is_over and earlier.count < later.count:
            self.violation(f"locked: {later} is given while the member has a lock: {earlier}")

    def gave_up(self, deliveries: Iterable[Delivery]) -> None:
        """Note that a member may have given up its locks."""
        for each in deliveries:
            each.is_over = True

    def sent(self, delivery: Delivery, kind: int) -> None:
        """Note that a member acknowledges what it was given."""
        if delivery.is_over:
            self._again.add(delivery)
        if kind != RENEW:  # It also ends a later lock of the same member.
            self.gave_up(each for each in self._given[delivery.place] if each.member_id == delivery.member_id)
        self._in_doubt[delivery.place, kind] += 1

    def answered(self, delivery: Delivery, kind: int, code: int, now_s: float, *, is_certain: bool) -> None:
        """Note the answer to an acknowledgement; it is not certain if the record may be below the start."""
        place = delivery.place
        if code in REFUSED:
            self._in_doubt[place, kind] -= 1
        elif code == NONE and is_certain and delivery not in self._again:
            self._done.setdefault((place, kind), now_s)
            if kind == RELEASE:
                self._released[place] = max(self._released.get(place, (0, 0.0)), (delivery.count, now_s))

    def may_be(self, place: Place, kind: int) -> bool:
        """True if a member that was given the record may have acknowledged it so."""
        return (place, kind) in self._done or self._in_doubt[place, kind] > 0

    def is_final(self, place: Place) -> bool:
        """True if the record may be finished: a member has accepted it, or there is a dead letter."""
        return place in self.letters or self.may_be(place, ACCEPT)

    def wrote(self, letter: Letter) -> None:
        """Note a committed dead letter, and check whether there is a reason for it."""
        place = letter.place
        if (place, ACCEPT) in self._done:
            self.violation(f"letters: {place} was accepted, and there is {letter}")
        if letter.is_rejected and not self.may_be(place, REJECT):
            self.violation(f"letters: no member that was given {place} has rejected it, and there is {letter}")
        if not letter.is_rejected and letter.delivery_count < self._count_limit:
            self.violation(f"letters: {letter} was delivered less than {self._count_limit} times")
        if self.values.setdefault(place, letter.value or b"") != (letter.value or b"") and letter.value is not None:
            self.violation(f"changed: {place} was {self.values[place]!r}, and there is {letter}")
        self.letters.setdefault(place, letter)

    def check_finished(self, records: Mapping[Place, bytes], committed: Iterable[Place]) -> None:
        """Check at the end that members were given only what is in the log, and that all committed is finished."""
        is_committed = set(committed)
        for place, value in records.items():
            known = self.values.get(place)
            if known is not None and known != value:
                self.violation(f"changed: {place} was {known!r}, and {value!r} is there")
            if place not in is_committed and place in self._given:
                self.violation(f"aborted: {place} was aborted, and delivered")
            if place in is_committed and not self.is_final(place):
                given = self._given.get(place)
                self.violation(f"unfinished: {place} is neither accepted nor in the dead letters; given: {given}")
