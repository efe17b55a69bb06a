"""Which batches of clients are looked into. Kafka walks over the records of all; here trust is earned.

The first batches of each connection and topic, all whose header cannot be true, and one of many of all others: a
producer is a program, and one that says what is not true does so again and again. From then on all of its connection's
are looked into. What was found is counted by client id, and logged once for each client and topic.
"""

import logging
from collections import Counter
from enum import StrEnum
from random import Random
from typing import Final

from barnabas_broker.wire.plausibility import is_implausible
from barnabas_broker.wire.record_batch import BatchHeader

log = logging.getLogger(__name__)

FIRST_BATCHES: Final = 4
"""Of a connection and a topic, all looked into."""
SAMPLE: Final = 512
"""Of the others one of so many, on average."""
TOPICS_MAX: Final = 1000
"""Of one connection; the trust in the topic that came first is forgotten."""
CLIENTS_MAX: Final = 100
"""With a count of their own; the others share one."""
OTHER_CLIENTS: Final = "others"
LINES_MAX: Final = 1000
"""In the log, of one incarnation of the broker."""


class Untruth(StrEnum):
    """What was done about it."""

    REFUSED = "refused"
    """The bytes are not the records that the header tells of."""
    CORRECTED = "corrected"
    """The largest timestamp was not the one of the records."""


class BatchTrust:
    """All clients of a broker. `random` chooses the samples."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.untrue: Counter[tuple[str, Untruth]] = Counter()
        """Batches by client id."""
        self._clients: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def of_connection(self, client_id: str) -> "ConnectionTrust":
        """The trust that a new connection begins with: none is earned yet."""
        return ConnectionTrust(self, client_id)

    def found(self, client_id: str, topic: str, untruth: Untruth, what: str) -> None:
        """Count it, and tell it unless that was done."""
        if len(self._clients) < CLIENTS_MAX:
            self._clients.add(client_id)
        self.untrue[client_id if client_id in self._clients else OTHER_CLIENTS, untruth] += 1
        if (client_id, topic) not in self._told and len(self._told) < LINES_MAX:
            self._told.add((client_id, topic))
            log.warning("client %r sends untrue batches to %s, this one was %s: %s", client_id, topic, untruth, what)


class ConnectionTrust:
    """How far the batches of one connection are trusted."""

    __slots__ = ("_broker", "_client_id", "_is_lost", "_unseen")

    def __init__(self, broker: BatchTrust, client_id: str) -> None:
        self._broker = broker
        self._client_id = client_id
        self._is_lost = False
        self._unseen: dict[str, int] = {}
        """By topic: so many more batches are taken unseen, or, below 0, so many first ones are still looked into."""

    def doubts(self, topic: str, header: BatchHeader, now_ms: int) -> bool:
        """Whether this batch, which goes to `topic` now, is to be looked into."""
        unseen = self._unseen.get(topic, 0)
        if unseen > 0:
            self._unseen[topic] = unseen - 1
            return is_implausible(header, now_ms)
        if not self._is_lost:
            self._unseen[topic] = self._next(topic, unseen)
        return True

    def _next(self, topic: str, unseen: int) -> int:
        """What follows after a batch that is looked into."""
        if topic not in self._unseen:
            if len(self._unseen) >= TOPICS_MAX:
                del self._unseen[next(iter(self._unseen))]
            unseen = -FIRST_BATCHES
        return unseen + 1 if unseen < -1 else self._broker.random.randrange(1, 2 * SAMPLE)

    def refused(self, topic: str, reason: str) -> None:
        """A batch was not the records that its header tells of."""
        self._lose(topic, Untruth.REFUSED, reason)

    def corrected(self, topic: str, told_ms: int, true_ms: int) -> None:
        """The largest timestamp of a batch was another one."""
        self._lose(topic, Untruth.CORRECTED, f"max timestamp {told_ms}; that of its records is {true_ms}")

    def _lose(self, topic: str, untruth: Untruth, what: str) -> None:
        self._is_lost = True
        self._unseen.clear()  # None is taken unseen any more.
        self._broker.found(self._client_id, topic, untruth, what)
