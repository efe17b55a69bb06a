"""The transactions whose batches or markers the current compaction of a log has read so far.

Batches must be passed in the order of their offsets.
"""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_broker.wire.record_batch import BatchHeader


class Ended(NamedTuple):
    """The transaction that a marker ends."""

    aborted: AbortedTransaction | None
    """The entry of the transaction index, or None if the transaction was committed."""
    has_batches: bool
    """True if this compaction has read batches of the transaction; consumers may then still need its marker."""


class RoundTransactions:
    """The transactions in the section of a log that one compaction reads.

    `aborted` are the aborted transactions with records in the section.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=_first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The last aborted transaction of each producer, by producer id.

        Transactions that begin after the current batch are not included yet.
        """
        self._met: set[int] = set()
        """The ids of producers with a transactional batch after their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Process the next batch of the compaction; return True if the batch belongs to an aborted transaction."""
        self._begin_until(header)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and header.base_offset <= aborted.last_offset

    def end(self, header: BatchHeader) -> Ended:
        """Return the transaction that the marker ends, and forget it."""
        self._begin_until(header)
        has_batches = header.producer_id in self._met
        self._met.discard(header.producer_id)
        return Ended(self._aborted.pop(header.producer_id, None), has_batches)

    def _begin_until(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            begun = self._coming.pop()
            self._aborted[begun.producer_id] = begun


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset
