"""The writes and ends of transactions, the observations of consumers of committed records, and their checks.

A value is `LANE/NUMBER`: the number of a transaction of one producer, which it writes to some partitions of one topic.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from simulation.committed_reader import Place

NO_OFFSET: Final = -1


class Sent(NamedTuple):
    """The writes of a transaction; `offset` is that of its group, or NO_OFFSET."""

    partitions: tuple[int, ...]
    offset: int


class TransactionHistory:
    """The history; `violation` gets what no correct cluster shows."""

    def __init__(self, topic: str, violation: Callable[[str], object]) -> None:
        self.committed: set[str] = set()
        self.aborted: set[str] = set()
        """The aborted transactions; the end of one that is in neither set is unknown."""
        self.is_lossy = False
        """True if an administrator has accepted that records are lost: a missing record proves nothing then."""
        self._topic = topic
        self.violation = violation
        self._sent: dict[str, Sent] = {}
        self._seen: dict[Place, str] = {}
        self._stable_until: dict[tuple[str, int], int] = {}

    def sent(self, value: str, sent: Sent) -> None:
        """Note that a transaction begins."""
        self._sent[value] = sent

    def zombie_is_answered(self, what: str) -> None:
        """Note a successful response to a producer that had been fenced before its request."""
        self.violation(f"zombie: {what} was accepted")

    def is_dead(self, what: str) -> None:
        """Note that a producer cannot go on, although no other one has taken its id."""
        if not self.is_lossy:
            self.violation(f"dead: {what}")

    def saw(self, place: Place, value: str) -> None:
        """Note that a consumer of committed records got a record."""
        known = self._seen.setdefault(place, value)
        if known != value:
            self.violation(f"two values at {place}: {known} and {value}")

    def is_stable_until(self, topic: str, partition: int, offset: int) -> None:
        """Note the last stable offset that a consumer has seen."""
        known = self._stable_until.get((topic, partition), 0)
        if offset < known and not self.is_lossy:
            self.violation(f"last stable offset of {topic}-{partition} goes back: from {known} to {offset}")
        self._stable_until[topic, partition] = offset

    def check(self, logs: Sequence[Mapping[Place, str]], offsets: Mapping[str, int]) -> None:
        """Check the committed records of each partition, and the offsets of the lanes' groups, when all is over."""
        if self.is_lossy:
            return
        for log in logs:
            self._check_values(list(log.values()))
        for place, value in self._seen.items():
            if place.topic == self._topic and logs[place.partition].get(place) != value:
                self._tell_gone(place, value)
        found = [set(log.values()) for log in logs]
        for value, sent in self._sent.items():
            where = {partition for partition in sent.partitions if value in found[partition]}
            if value in self.committed and len(where) < len(sent.partitions):
                self.violation(f"lost: {value} is committed, and only in {sorted(where)} of {sent.partitions}")
            elif 0 < len(where) < len(sent.partitions):
                self.violation(f"torn: {value} is in {sorted(where)} only of {sent.partitions}")
        self._check_offsets(set().union(*found), offsets)

    def _tell_gone(self, place: Place, value: str) -> None:
        kind = "aborted and seen" if value in self.aborted else "seen and gone"
        self.violation(f"{kind}: {value} at {place}")

    def _check_values(self, values: Sequence[str]) -> None:
        last: dict[str, int] = {}
        for value in values:
            lane, _, number = value.rpartition("/")
            if value not in self._sent:
                self.violation(f"zombie: {value} is committed")
                continue
            if value in self.aborted:
                self.violation(f"aborted and seen: {value}")
            elif int(number) <= last.get(lane, -1):
                self.violation(f"twice or out of order: {value} behind {lane}/{last[lane]}")
            last[lane] = int(number)

    def _check_offsets(self, found: set[str], offsets: Mapping[str, int]) -> None:
        for lane, offset in offsets.items():
            of_lane = (sent for value, sent in self._sent.items() if value in found and value.startswith(f"{lane}/"))
            expected = max((sent.offset for sent in of_lane), default=NO_OFFSET)
            self.check_offset(lane, offset, expected)

    def check_offset(self, lane: str, offset: int, expected: int) -> None:
        """Check that the group of a lane has the offset of its last committed transaction."""
        if offset != expected and not self.is_lossy:
            what = f"{offset} is committed, and {expected} by the last of its committed transactions"
            self.violation(f"offsets apart from their transactions: of group {lane} {what}")

    def check_copies(self, source: Sequence[str], copies: Sequence[str], offset: int, end: int) -> None:
        """Check that the copies have each record of the source once, in order, up to the committed offset."""
        if self.is_lossy or (list(source) == list(copies) and offset == end):
            return
        same = next((at for at, (one, other) in enumerate(zip(source, copies, strict=False)) if one != other), None)
        what = f"{len(copies)} copies of {len(source)} values, read until {offset} of {end}"
        at = min(len(source), len(copies)) if same is None else same
        self.violation(f"copied apart: {what}; from copy {at} on {copies[at : at + 3]} of {source[at : at + 3]}")
