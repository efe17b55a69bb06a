"""The observations of clients in a run, and `check`, which finds the impossible ones: pure, so it can be tested.

Record number n of a writer has the value `WRITER/n`; its numbers rise in every partition.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas_broker.wire.record_batch import BatchHeader

SHOWN_MAX = 5


class Lane(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Acknowledged(NamedTuple):
    """An acknowledged record; `offset` is negative if the client does not know it."""

    lane: Lane
    value: bytes
    offset: int


class Commit(NamedTuple):
    """A commit of a member that was acknowledged. Times are of one clock, in seconds."""

    lane: Lane
    offset: int
    began_s: float
    ended_s: float
    member: str = "somebody"


@dataclass
class History:
    """The observations of a run. `logs` is what was read back at the end, from offset 0 on."""

    idempotent_topics: frozenset[str]
    acknowledged: list[Acknowledged] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)  # The number of records by writer, which is the next number.
    seen: dict[Lane, dict[int, bytes]] = field(default_factory=dict)  # By all members of the group.
    givens: dict[Lane, dict[int, str]] = field(default_factory=dict)  # The member that got it first.
    commits: list[Commit] = field(default_factory=list)
    committed: dict[Lane, int] = field(default_factory=dict)  # The offsets at the end.
    logs: dict[Lane, list[bytes]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # Problems during the run.

    def saw(self, lane: Lane, offset: int, value: bytes, member: str = "somebody") -> None:
        """Note that a member of the group got this record."""
        self.givens.setdefault(lane, {}).setdefault(offset, member)
        known = self.seen.setdefault(lane, {}).setdefault(offset, value)
        if known != value:
            self.problems.append(f"two values: {lane} offset {offset} was {known!r} and then {value!r}")


def check(history: History) -> list[str]:
    """Return all violations, at most some of each kind, each as `kind: what`."""
    found = [*history.problems]
    for lane, log in history.logs.items():
        found += _lost(history, lane, log)
        found += _never_sent(history, lane, log)
        found += _repeats(history, lane, log)
        found += _unseen(history, lane, log)
    found += _commits_backwards(history.commits)
    found += _commits_lost(history)
    return list(_some_of_each_kind(found))


def _lost(history: History, lane: Lane, log: list[bytes]) -> Iterator[str]:
    there = set(log)
    for record in history.acknowledged:
        if record.lane != lane:
            continue
        if record.value not in there:
            yield f"lost: {record.value!r} was acknowledged at {lane} offset {record.offset}; it is nowhere"
        elif record.offset >= 0 and (record.offset >= len(log) or log[record.offset] != record.value):
            yield f"moved: {record.value!r} was acknowledged at {lane} offset {record.offset}; it is not there"


def _never_sent(history: History, lane: Lane, log: list[bytes]) -> Iterator[str]:
    for offset, value in enumerate(log):
        writer, number = parsed(value)
        if not 0 <= number < history.sent.get(writer, 0):
            yield f"never sent: {value!r} is at {lane} offset {offset}"


def _repeats(history: History, lane: Lane, log: list[bytes]) -> Iterator[str]:
    """Yield repeated records.

    Without idempotence a retry may repeat one, and arrive at a new leader after later records.
    """
    if lane.topic not in history.idempotent_topics:
        return
    yield from (f"duplicate: {value!r} is {n} times in {lane}" for value, n in Counter(log).items() if n > 1)
    newest: dict[str, int] = {}
    for value in dict.fromkeys(log):
        writer, number = parsed(value)
        if number < newest.get(writer, -1):
            yield f"reorder: {value!r} comes after {newest[writer]} in {lane}"
        newest[writer] = max(number, newest.get(writer, -1))


def broken_sequences(headers: Iterable[BatchHeader]) -> Iterator[str]:
    """Yield batches of a partition whose sequence does not follow the batch before of the same producer epoch."""
    expected: dict[tuple[int, int], int] = {}
    for header in headers:
        producer = header.producer_id, header.producer_epoch
        if header.producer_id < 0:
            continue
        if header.base_sequence != expected.get(producer, 0):
            yield (
                f"offset {header.base_offset} of producer {producer} has sequence {header.base_sequence}, "
                f"not {expected.get(producer, 0)}"
            )
        expected[producer] = header.base_sequence + header.record_count


def _unseen(history: History, lane: Lane, log: list[bytes]) -> Iterator[str]:
    seen = history.seen.get(lane, {})
    for offset, value in enumerate(log):
        if offset not in seen:
            around = _around(history, lane, offset)
            yield f"unseen: the group was never given {value!r} of {lane} offset {offset}; {around}"
    for offset, value in seen.items():
        if offset >= len(log) or log[offset] != value:
            there = log[offset] if offset < len(log) else "nothing"
            yield f"seen and gone: {value!r} of {lane} offset {offset}; {there!r} is there"


def _around(history: History, lane: Lane, offset: int) -> str:
    """Return who got the records around an offset, and who first reported the group's position there."""
    givens = history.givens.get(lane, {})
    before = max((each for each in givens if each < offset), default=None)
    behind = min((each for each in givens if each > offset), default=None)
    told = [f"{givens[each]} was given {each}" for each in (before, behind) if each is not None]
    passing = [each for each in history.commits if each.lane == lane and each.offset > offset]
    first = min(passing, key=lambda each: each.ended_s, default=None)
    told += [f"{first.member} was the first to commit behind it, {first.offset}"] if first else ["nobody committed it"]
    return ", ".join(told)


def _commits_backwards(commits: list[Commit]) -> Iterator[str]:
    """Yield commits that are behind another one which had ended before they began."""
    for lane in {commit.lane for commit in commits}:
        of_lane = [commit for commit in commits if commit.lane == lane]
        ended = sorted(of_lane, key=lambda commit: commit.ended_s)
        position, highest = 0, -1
        for commit in sorted(of_lane, key=lambda commit: commit.began_s):
            while ended[position].ended_s < commit.began_s:
                highest = max(highest, ended[position].offset)
                position += 1
            if commit.offset < highest:
                yield f"commit backwards: {commit.offset} of {lane} after {highest} was kept"


def _commits_lost(history: History) -> Iterator[str]:
    for lane in {commit.lane for commit in history.commits}:
        highest = max(commit.offset for commit in history.commits if commit.lane == lane)
        if history.committed.get(lane, -1) < highest:
            yield f"commit lost: {highest} of {lane} was kept; {history.committed.get(lane)} is there"


def parsed(value: bytes) -> tuple[str, int]:
    """Return writer and number of a record; ("", -1) for a value that no writer writes."""
    writer, _, number = value.decode("latin-1").partition("/")
    return (writer, int(number)) if number.isdecimal() else ("", -1)


def _some_of_each_kind(found: list[str]) -> Iterator[str]:
    kinds: Counter[str] = Counter()
    for problem in found:
        kind = problem.partition(":")[0]
        kinds[kind] += 1
        if kinds[kind] <= SHOWN_MAX:
            yield problem
    yield from (f"{kind}: {count} in all" for kind, count in kinds.items() if count > SHOWN_MAX)
