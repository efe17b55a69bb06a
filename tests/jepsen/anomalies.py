"""The anomalies of a history of transactions: pure, so that the checker itself can be tested.

Kafka's transactions do not isolate writes: records of open transactions are mixed in the log. And a consumer
reads what was committed when it reads, not when its own transaction began. So three kinds of cycles are legal, and are
only counted: over writes alone (G0), over writes and reads of them, and with a read that missed a later write (rw).
All other kinds are `FORBIDDEN`: a cycle over reads alone, for example, would mean that two transactions read each
other's records before they were committed. Jepsen's own checker for Kafka makes the same distinction.
"""

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import islice, pairwise
from typing import Final, NamedTuple

from jepsen.cycles import cycle_in, knots
from jepsen.history import Entry, History, Outcome, Read, Transaction


class Kind(StrEnum):
    """The anomalies, with their names in the literature."""

    WRITE_CYCLE = "write cycle (G0)"
    MIXED_CYCLE = "cycle of writes and reads (ww, wr)"
    MISSED_CYCLE = "cycle with a missed write (rw)"
    ABORTED = "aborted read (G1a)"
    INTERMEDIATE = "intermediate read (G1b)"
    CIRCULAR = "cyclic information flow (G1c)"
    EARLY = "read before its commit"
    LOST = "lost write"
    SKIPPED = "skipped write"
    DUPLICATE = "duplicate write"
    REORDERED = "reordered writes"
    INVENTED = "value that nobody wrote"


LEGAL: Final = frozenset({Kind.WRITE_CYCLE, Kind.MIXED_CYCLE, Kind.MISSED_CYCLE})
FORBIDDEN: Final = frozenset(Kind) - LEGAL


class Anomaly(NamedTuple):
    """A finding."""

    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


class Edge(NamedTuple):
    """The target appended after the source (ww), read its record (wr), or wrote a record that it had missed (rw)."""

    source: int
    target: int
    kind: str


def anomalies(history: History) -> list[Anomaly]:
    """Return all anomalies of a history."""
    found = [*_of_lists(history), *_of_transactions(history)]
    for transaction in history.transactions.values():
        for read in transaction.reads:
            found += _of_read(history, transaction, read)
    return found + _of_cycles(edges(history))


def _of_lists(history: History) -> Iterator[Anomaly]:
    for key, entries in history.committed.items():
        newest: dict[int, int] = {}
        for offset, value in entries:
            writer = history.transactions.get(value.transaction)
            if writer is None or (key, value) not in writer.appends:
                yield Anomaly(Kind.INVENTED, f"{value} is in list {key} at {offset}")
            elif writer.outcome is Outcome.ABORTED:
                yield Anomaly(Kind.ABORTED, f"{value} is in list {key} at {offset}, and its transaction was aborted")
            if value.number < newest.get(value.transaction, -1):
                yield Anomaly(Kind.REORDERED, f"{value} comes in list {key} after {newest[value.transaction]}")
            newest[value.transaction] = value.number
    for key, entries in history.everything.items():
        for value, times in Counter(entry.value for entry in entries).items():
            if times > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value} is in list {key} {times} times")


def _of_transactions(history: History) -> Iterator[Anomaly]:
    """Yield transactions that are committed or partly visible, but not visible completely."""
    there = {(key, entry.value) for key, entries in history.committed.items() for entry in entries}
    visible = {value.transaction for _, value in there}
    for transaction in history.transactions.values():
        is_visible = transaction.number in visible and transaction.outcome is Outcome.UNKNOWN
        if is_visible or transaction.outcome is Outcome.COMMITTED:
            for key, value in transaction.appends:
                if (key, value) not in there:
                    yield Anomaly(Kind.LOST, f"{value} of list {key}; its transaction is {transaction.outcome.value}")


def _of_read(history: History, reader: Transaction, read: Read) -> Iterator[Anomaly]:
    expected = set(_between(history.committed.get(read.key, []), read.start, read.end))
    where = f"transaction {reader.number} read list {read.key} from {read.start} to {read.end}"
    for entry in read.entries:
        writer = history.transactions.get(entry.value.transaction)
        if writer is not None and (writer is reader or read.ended_s < writer.asked_s < math.inf):
            yield Anomaly(Kind.EARLY, f"{where} and saw {entry.value} before its commit was asked for")
        if entry not in expected:
            is_aborted = entry in _between(history.everything.get(read.key, []), entry.offset, entry.offset + 1)
            yield Anomaly(Kind.ABORTED if is_aborted else Kind.LOST, f"{where} and saw {entry.value}, which is gone")
    for entry in sorted(expected.difference(read.entries)):
        yield Anomaly(Kind.SKIPPED, f"{where} without {entry.value} at {entry.offset}")
    if read.is_whole:
        yield from _torn(history, read, where)


def _torn(history: History, read: Read, where: str) -> Iterator[Anomaly]:
    """Yield reads that end within a transaction: the last stable offset is at its first record or after a marker.

    It may be between two records of a transaction if another, still open one began between them.
    """
    entries = history.everything.get(read.key, [])
    place = _place(entries, read.end)
    if 0 < place < len(entries):
        before, behind = entries[place - 1].value, entries[place].value
        if before.transaction == behind.transaction and entries[place - 1] in read.entries:
            yield Anomaly(Kind.INTERMEDIATE, f"{where}, with {before} and without {behind}")


def _place(entries: Sequence[Entry], offset: int) -> int:
    return bisect_left(entries, offset, key=lambda entry: entry.offset)


def _between(entries: Sequence[Entry], start: int, end: int) -> Sequence[Entry]:
    return entries[_place(entries, start) : _place(entries, end)]


def edges(history: History) -> set[Edge]:
    """Return the order of the transactions whose records are visible."""
    found = set[Edge]()
    for entries in history.committed.values():
        found |= {Edge(one.value.transaction, later.value.transaction, "ww") for one, later in pairwise(entries)}
    visible = {entry.value.transaction for entries in history.committed.values() for entry in entries}
    for number in visible & history.transactions.keys():
        for read in history.transactions[number].reads:
            found |= {Edge(entry.value.transaction, number, "wr") for entry in read.entries}
            found |= {Edge(number, later, "rw") for later in _first_missed(history, number, read)}
    return {edge for edge in found if edge.source != edge.target}


def _first_missed(history: History, reader: int, read: Read) -> Iterator[int]:
    """Yield the transaction of the first record, not the reader's own, that a complete read did not get."""
    entries = history.committed.get(read.key, [])
    places = range(_place(entries, read.end), len(entries)) if read.is_whole else ()
    later = (entries[place].value.transaction for place in places)
    yield from islice((number for number in later if number != reader), 1)


class Rule(NamedTuple):
    """The kinds of edges that a kind of cycle may have, and those that its component must have."""

    allowed: frozenset[str]
    required: frozenset[str]


CYCLES: Final = {
    Kind.WRITE_CYCLE: Rule(frozenset({"ww"}), frozenset({"ww"})),
    Kind.CIRCULAR: Rule(frozenset({"wr"}), frozenset({"wr"})),
    Kind.MIXED_CYCLE: Rule(frozenset({"ww", "wr"}), frozenset({"ww", "wr"})),
    Kind.MISSED_CYCLE: Rule(frozenset({"ww", "wr", "rw"}), frozenset({"rw"})),
}


def _of_cycles(found: set[Edge]) -> list[Anomaly]:
    """Return one anomaly for each component of each kind of cycle."""
    return [cycle for kind, rule in CYCLES.items() for cycle in _cycles(kind, rule, found)]


def _cycles(kind: Kind, rule: Rule, found: set[Edge]) -> Iterator[Anomaly]:
    graph = defaultdict[int, set[int]](set)
    for edge in found:
        if edge.kind in rule.allowed:
            graph[edge.source].add(edge.target)
    components = knots(graph)
    of_node = {node: place for place, knot in enumerate(components) for node in knot}
    inside = defaultdict[int, set[str]](set)
    for edge in found:
        if edge.source in of_node and of_node[edge.source] == of_node.get(edge.target):
            inside[of_node[edge.source]].add(edge.kind)
    for place, knot in enumerate(components):
        if rule.required <= inside[place]:
            nodes = cycle_in(graph, knot)
            yield Anomaly(kind, f"transactions {' -> '.join(map(str, nodes))}, of {len(knot)} that hang together")
