"""The requests that ask the coordinator whether a transaction is open.

The first batch of a transaction in a log waits for the response. Without a verification, a batch that arrives after the
end of its transaction could open the transaction again, and no marker would ever end it (KIP-890). If a transaction
marker is appended first, the response no longer counts.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Verification:
    """A request to the coordinator to verify a transaction; batches wait for the response."""

    epoch: int
    has_own_epoch: bool
    """True if each transaction has its own epoch (transaction.version 2)."""
    waiting: int = 0
    """The number of batches that wait for the verification."""


class Verifications:
    """The verifications of transactions, by producer id.

    If a verification is removed before a waiting batch is appended, the batch must be verified again.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, *, has_own_epoch: bool) -> Verification:
        """Return the verification of the producer's transaction, and count one more batch that waits for it.

        All batches of a producer with the same epoch share a verification.
        """
        known = self._open.get(producer_id)
        if known is None or known.epoch < epoch:
            known = self._open[producer_id] = Verification(epoch, has_own_epoch)
        known.waiting += 1
        return known

    def is_current(self, producer_id: int, verification: Verification) -> bool:
        """True if the verification still counts. A marker, a later epoch or the start of the transaction removes it."""
        return self._open.get(producer_id) is verification

    def drop(self, producer_id: int, verification: Verification) -> None:
        """Record that a batch no longer waits for the verification; remove the verification after the last batch."""
        verification.waiting -= 1
        if not verification.waiting and self.is_current(producer_id, verification):
            del self._open[producer_id]

    def appended(self, producer_id: int) -> None:
        """Remove the verification of the producer's transaction, because the transaction is open in this log now."""
        self._open.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Remove the producer's verification after a transaction marker.

        The verification stays if it is for the producer's next transaction.
        """
        known = self._open.get(producer_id)
        if known is not None and not (known.has_own_epoch and known.epoch == epoch):
            del self._open[producer_id]
