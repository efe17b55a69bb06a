"""Transactions that append to lists and read them, as their clients saw them. A list is a partition."""

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Self


class Outcome(Enum):
    """The end of a transaction, as far as it is known."""

    COMMITTED = "committed"
    """A commit was acknowledged."""
    ABORTED = "aborted"
    """No commit was requested, or only by a producer that had been fenced before."""
    UNKNOWN = "unknown"
    """A commit was requested, and its response was an error or did not come."""


class Value(NamedTuple):
    """An element: the transaction that appended it, and its number among those that this transaction appended."""

    transaction: int
    number: int

    def __str__(self) -> str:
        return f"{self.transaction}.{self.number}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Return the value in a record."""
        transaction, number = data.split(b".")
        return cls(int(transaction), int(number))


class Entry(NamedTuple):
    """A value and its offset in a list."""

    offset: int
    value: Value


class Append(NamedTuple):
    """A value that a transaction appended to the list of a key."""

    key: int
    value: Value


class Read(NamedTuple):
    """The committed entries of a list from `start` to `end` (exclusive), as a consumer got them."""

    key: int
    start: int
    end: int
    entries: tuple[Entry, ...]
    is_whole: bool
    """True if it ended at the last stable offset at that time; otherwise it ended before."""
    ended_s: float = 0.0


@dataclass
class Transaction:
    """One transaction. Times are of one clock, in seconds."""

    number: int
    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    outcome: Outcome = Outcome.ABORTED
    asked_s: float = math.inf
    """The time at which its commit was first requested."""


@dataclass
class History:
    """The transactions by their numbers, and the lists as they were at the end, when no transaction was open."""

    transactions: dict[int, Transaction]
    committed: dict[int, list[Entry]]
    """The committed records of each key, as a reader found them."""
    everything: dict[int, list[Entry]]
    """All records of each key, also aborted ones."""
