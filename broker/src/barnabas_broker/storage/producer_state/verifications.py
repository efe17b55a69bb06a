"""The verifications of transactions by the coordinator, for which a producer's first batch has to wait.

Without a verification, a late batch could begin a transaction again after its end, and no marker would end the
transaction (KIP-890). A marker removes the verification.
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
    """The verifications by producer id. A batch whose verification was removed must be verified again."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, *, has_own_epoch: bool) -> Verification:
        """Return the verification that a producer's batches in an epoch share, and count one more waiting batch."""
        known = self._open.get(producer_id)
        if known is None or known.epoch < epoch:
            known = self._open[producer_id] = Verification(epoch, has_own_epoch)
        known.waiting += 1
        return known

    def is_current(self, producer_id: int, verification: Verification) -> bool:
        """True if no marker, later epoch or start of the transaction has removed the verification."""
        return self._open.get(producer_id) is verification

    def drop(self, producer_id: int, verification: Verification) -> None:
        """Record that a batch no longer waits; remove the verification after the last waiting batch."""
        verification.waiting -= 1
        if not verification.waiting and self.is_current(producer_id, verification):
            del self._open[producer_id]

    def appended(self, producer_id: int) -> None:
        """Remove the producer's verification, because the transaction is open now."""
        self._open.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Remove the producer's verification after a marker, unless it is for the next transaction."""
        known = self._open.get(producer_id)
        if known is not None and not (known.has_own_epoch and known.epoch == epoch):
            del self._open[producer_id]
