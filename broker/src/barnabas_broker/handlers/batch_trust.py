"""Choose the produced batches whose records the broker checks.

Kafka checks the records of all batches. This broker checks the records of the first batches of a connection, and later
only the records of batches with an implausible header, because a client that writes wrong headers does so repeatedly.
After one invalid batch all batches of the connection are checked. While the helper process that checks records is busy,
one of the first batches may be accepted unchecked; one more of the later batches is then checked instead. Invalid
batches are counted by client id, and logged once for each client and topic.
"""

import logging
from collections import Counter
from enum import StrEnum
from typing import Final

from barnabas_broker.wire.record_batch import BatchHeader, is_implausible

log = logging.getLogger(__name__)

FIRST_BATCHES: Final = 4
"""The number of batches that are checked on a new connection if each of them has a single record.

The check of one batch with several records is enough.
"""
ALL_BATCHES: Final = 1 << 62
"""The value of `doubted`, the number of batches still to check, after an invalid batch.

The value is larger than the number of batches of any connection, so all later batches are checked.
"""
CLIENTS_MAX: Final = 100
"""The maximum number of client ids whose invalid batches are counted separately; all other clients share one count."""
OTHER_CLIENTS: Final = "others"
LINES_MAX: Final = 1000
"""The maximum number of log lines about invalid batches until the broker restarts."""


class InvalidOutcome(StrEnum):
    """The broker's handling of an invalid batch: refused or corrected."""

    REFUSED = "refused"
    """The outcome for a batch that was refused because its records do not match its header."""
    CORRECTED = "corrected"
    """The outcome for a batch that was appended with a corrected max timestamp."""


class BatchTrust:
    """The counts of invalid batches, one count for each client and outcome."""

    def __init__(self) -> None:
        self.invalid: Counter[tuple[str, InvalidOutcome]] = Counter()
        """The number of invalid batches by client id and outcome."""
        self._clients: set[str] = set()
        self._logged: set[tuple[str, str]] = set()

    def of_connection(self, client_id: str) -> "ConnectionTrust":
        """Create the ConnectionTrust of a new connection, which requires checks of the first FIRST_BATCHES batches."""
        return ConnectionTrust(self, client_id)

    def found(self, client_id: str, topic: str, outcome: InvalidOutcome, what: str) -> None:
        """Count an invalid batch, and log the first one of this client and topic."""
        if len(self._clients) < CLIENTS_MAX:
            self._clients.add(client_id)
        self.invalid[client_id if client_id in self._clients else OTHER_CLIENTS, outcome] += 1
        if (client_id, topic) not in self._logged and len(self._logged) < LINES_MAX:
            self._logged.add((client_id, topic))
            log.warning(
                "client %r sends invalid batches to topic %s; the first invalid batch was %s: %s",
                client_id,
                topic,
                outcome,
                what,
            )


class ConnectionTrust:
    """The state of one connection that decides which of its batches are checked."""

    __slots__ = ("_broker", "client_id", "doubted")

    def __init__(self, broker: BatchTrust, client_id: str) -> None:
        self._broker = broker
        self.client_id = client_id
        self.doubted = FIRST_BATCHES
        """The number of batches of the connection that must still be checked, even if their headers are plausible."""

    def may_pass(self, header: BatchHeader, now_ms: int) -> bool:
        """True if a batch may be appended without a check, although `doubted` says that batches must still be checked.

        The header must be plausible, and all batches that were checked so far must have been valid.
        """
        return 0 < self.doubted <= FIRST_BATCHES and not is_implausible(header, now_ms)

    def checked(self, header: BatchHeader) -> None:
        """Lower `doubted`, the number of batches still to check, by 1 for a checked batch.

        A batch with several records lowers `doubted` by FIRST_BATCHES, because one such check is enough.
        """
        self.doubted = max(self.doubted - (1 if header.record_count == 1 else FIRST_BATCHES), 0)

    def refused(self, topic: str, reason: str) -> None:
        """Count a batch whose records do not match its header; from now on check all batches of the connection."""
        self._lose(topic, InvalidOutcome.REFUSED, reason)

    def corrected(self, topic: str, header_ms: int, true_ms: int) -> None:
        """Count a batch with a wrong max timestamp in its header; from now on check all batches of the connection."""
        self._lose(
            topic,
            InvalidOutcome.CORRECTED,
            f"the header had the max timestamp {header_ms}, but the largest timestamp of the records is {true_ms}",
        )

    def _lose(self, topic: str, outcome: InvalidOutcome, what: str) -> None:
        self.doubted = ALL_BATCHES
        self._broker.found(self.client_id, topic, outcome, what)
