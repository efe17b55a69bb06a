"""The choice of client batches whose records are checked. Kafka checks all; here clients earn trust.

A producer is a program: one that writes wrong headers does so again and again. So the first batches of a connection are
looked into, and then those with an implausible header. Once one was invalid, all of that connection's are looked into.
A first batch waits for nobody: where it would have to, it is accepted as it is, and the next one is looked into. The
findings are counted by client id, and logged once for each client and topic.
"""

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

from barnabas_broker.wire.plausibility import is_implausible
from barnabas_broker.wire.record_batch import BatchHeader

log = logging.getLogger(__name__)

FIRST_BATCHES: Final = 4
"""The number of a connection's first batches that are checked; one batch of several records is enough."""
ALL_BATCHES: Final = 1 << 62
"""A number of batches that no connection reaches."""
CLIENTS_MAX: Final = 100
"""The clients with a count of their own; the others share one."""
OTHER_CLIENTS: Final = "others"
LINES_MAX: Final = 1000
"""The lines in the log of one incarnation of the broker."""


class InvalidOutcome(StrEnum):
    """The outcome for an invalid batch."""

    REFUSED = "refused"
    """The bytes are not the records that the header describes."""
    CORRECTED = "corrected"
    """The largest timestamp was not the one of the records."""


class BatchTrust:
    """The invalid batches of all clients of a broker."""

    def __init__(self) -> None:
        self.invalid: Counter[tuple[str, InvalidOutcome]] = Counter()
        """The number of invalid batches by client id and outcome."""
        self._clients: set[str] = set()
        self._logged: set[tuple[str, str]] = set()

    def of_connection(self, client_id: str) -> "ConnectionTrust":
        """Return the trust of a new connection, which has earned none yet."""
        return ConnectionTrust(self, client_id)

    def found(self, client_id: str, topic: str, outcome: InvalidOutcome, what: str) -> None:
        """Count an invalid batch, and log the first one of this client and topic."""
        if len(self._clients) < CLIENTS_MAX:
            self._clients.add(client_id)
        self.invalid[client_id if client_id in self._clients else OTHER_CLIENTS, outcome] += 1
        if (client_id, topic) not in self._logged and len(self._logged) < LINES_MAX:
            self._logged.add((client_id, topic))
            log.warning("client %r sends invalid batches to %s; the first was %s: %s", client_id, topic, outcome, what)


class ConnectionTrust:
    """The trust in the batches of one connection."""

    __slots__ = ("_broker", "client_id", "doubted")

    def __init__(self, broker: BatchTrust, client_id: str) -> None:
        self._broker = broker
        self.client_id = client_id
        self.doubted = FIRST_BATCHES
        """The number of next batches that are checked, whatever their header says."""

    def may_pass(self, header: BatchHeader, now_ms: int) -> bool:
        """True if a batch may go unchecked: only first batches are checked, and a later one will do as well."""
        return 0 < self.doubted <= FIRST_BATCHES and not is_implausible(header, now_ms)

    def looks_into(self, header: BatchHeader) -> None:
        """Note that a batch is checked, which counts towards the first ones."""
        self.doubted = max(self.doubted - (1 if header.record_count == 1 else FIRST_BATCHES), 0)

    def refused(self, topic: str, reason: str) -> None:
        """Note a batch whose bytes are not the records that its header describes."""
        self._lose(topic, InvalidOutcome.REFUSED, reason)

    def corrected(self, topic: str, said_ms: int, true_ms: int) -> None:
        """Note a batch whose header had a wrong max timestamp."""
        self._lose(topic, InvalidOutcome.CORRECTED, f"max timestamp {said_ms}; the largest of its records is {true_ms}")

    def _lose(self, topic: str, outcome: InvalidOutcome, what: str) -> None:
        self.doubted = ALL_BATCHES
        self._broker.found(self.client_id, topic, outcome, what)
