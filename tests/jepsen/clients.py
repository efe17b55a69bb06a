"""Clients that append to lists and read them in transactions, and note what they saw. Each has its own thread."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import count
from typing import Final

from drivers.interface import Message, Writer
from jepsen.history import Append, Outcome, Transaction, Value
from jepsen.libraries import FAILURES, Library
from jepsen.lists import KEYS, TOPIC, Lists

STEPS_MAX: Final = 4
READ_SECONDS_MAX: Final = 2.0
PAUSE_SECONDS_MAX: Final = 0.05
END_SECONDS_MAX: Final = 180.0


class Fate(Enum):
    """The end that a client wants for a transaction, with its frequency in percent."""

    COMMIT = 78
    ABORT = 12
    ZOMBIE = 9
    """A second producer with the same id begins; then the first one writes, and requests a commit."""
    LEAVE = 1
    """The transaction stays open until its timeout, and holds back readers; the client continues with another id."""


class Notes:
    """The transactions of all clients, and their problems."""

    def __init__(self) -> None:
        self.transactions: dict[int, Transaction] = {}
        self.fates: Counter[Fate] = Counter()
        self.problems: list[str] = []
        self._numbers = count()

    def begin(self) -> Transaction:
        """Return a new transaction."""
        transaction = Transaction(next(self._numbers))
        self.transactions[transaction.number] = transaction
        return transaction


class Client(threading.Thread):
    """A client with one producer at a time of one library, and a consumer."""

    def __init__(
        self, name: str, start_library: Callable[[], Library], bootstrap: str, notes: Notes, chance: random.Random
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.committed = 0
        self._start_library = start_library
        self._brokers = bootstrap
        self._notes = notes
        self._chance = chance
        self._id = name
        self._ids = count(1)
        self._writer: Writer | None = None
        self._ending = threading.Event()

    def run(self) -> None:
        """Run one transaction after the other until the run ends."""
        try:
            # The thread that starts a process must live as long as the process.
            self._library, self._lists = self._start_library(), Lists(self._brokers)
            while not self._ending.is_set():
                self._transact()
                self._ending.wait(self._chance.uniform(0.0, PAUSE_SECONDS_MAX))
            self._lists.close()
            self._library.close()
        except Exception as error:
            self._notes.problems.append(f"client failed: {self.name}: {error!r}")

    def finish(self) -> None:
        """Return when the client has ended in order."""
        self._ending.set()
        self.join(END_SECONDS_MAX)
        if self.is_alive():
            self._notes.problems.append(f"client failed: {self.name} does not end")

    def _transact(self) -> None:
        try:
            writer = self._writer = self._writer or self._library.open(self._id)
        except FAILURES:
            return
        transaction = self._notes.begin()
        fates = [fate for fate in Fate if fate is not Fate.LEAVE or self._library.can_leave]
        fate = self._chance.choices(fates, [fate.value for fate in fates])[0]
        try:
            self._append(writer, transaction)
            for _ in range(self._chance.randrange(STEPS_MAX)):
                if self._chance.random() < 0.5:
                    self._append(writer, transaction)
                else:
                    transaction.reads += self._lists.read(READ_SECONDS_MAX)
            self._end(writer, transaction, fate)
            self._notes.fates[fate] += 1
        except FAILURES:
            self._renew(writer)

    def _append(self, writer: Writer, transaction: Transaction) -> None:
        """Append one or two values to a list; they are noted first, since a failed producer may have written them."""
        key = self._chance.randrange(KEYS)
        first = len(transaction.appends)
        values = [Value(transaction.number, first + place) for place in range(self._chance.randint(1, 2))]
        transaction.appends += [Append(key, value) for value in values]
        writer.write(TOPIC, [Message(str(value).encode(), partition=key) for value in values])

    def _end(self, writer: Writer, transaction: Transaction, fate: Fate) -> None:
        match fate:
            case Fate.COMMIT:
                transaction.outcome, transaction.asked_s = Outcome.UNKNOWN, time.monotonic()
                writer.end(commit=True)
                transaction.outcome = Outcome.COMMITTED
                self.committed += 1
            case Fate.ABORT:
                writer.end(commit=False)
            case Fate.ZOMBIE:
                self._writer = self._library.open(self._id)
                self._act_as_zombie(writer, transaction)
            case Fate.LEAVE:
                self._id = f"{self.name}-{next(self._ids)}"
                self._renew(writer)

    def _act_as_zombie(self, writer: Writer, transaction: Transaction) -> None:
        with suppress(*FAILURES):
            self._append(writer, transaction)
        try:
            writer.end(commit=True)
        except FAILURES:
            _close(writer)
        else:
            self._notes.problems.append(f"zombie: transaction {transaction.number} of a fenced producer was committed")

    def _renew(self, writer: Writer) -> None:
        """Abandon a producer; the next one with its id aborts an open transaction, or finds it committed."""
        _close(writer)
        if self._writer is writer:
            self._writer = None


def _close(writer: Writer) -> None:
    with suppress(*FAILURES):
        writer.close()
