"""The requests that ask the coordinator whether a transaction is open.

The first batch of a transaction in a log waits for the response. Without a verification, a batch that arrives after the
end of its transaction could open the transaction again, and no marker would ever end it (KIP-890). If a transaction
marker is appended first, the response no longer counts.
"""

from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary


@dataclass(slots=True, eq=False, weakref_slot=True)
class Verification:
    """A request to the coordinator to verify a transaction. Each batch that waits for it holds it until the append."""

    epoch: int
    has_own_epoch: bool
    """True if each transaction has its own epoch (transaction.version 2)."""


_NONE: Final[WeakValueDictionary[int, Verification]] = WeakValueDictionary()
"""The verifications of a log that has had none, which is never changed; a dictionary of its own takes 700 bytes."""


class Verifications:
    """The verifications of transactions, by producer id. A verification that no batch holds any more is removed.

    If a verification is removed before a waiting batch is appended, the batch must be verified again.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = _NONE

    def begin(self, producer_id: int, epoch: int, *, has_own_epoch: bool) -> Verification:
        """Return the verification of the producer's transaction.

        All batches of a producer with the same epoch share a verification.
        """
        known = self._open.get(producer_id)
        if known is None or known.epoch < epoch:
            known = Verification(epoch, has_own_epoch)
            if self._open is _NONE:
                self._open = WeakValueDictionary()
            self._open[producer_id] = known
        return known

    def current(self, producer_id: int) -> Verification | None:
        """Return the verification of the producer that counts, or None.

        A marker, a later epoch or the start of the transaction in this log removes a verification.
        """
        return self._open.get(producer_id)

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
