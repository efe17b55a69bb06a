"""The producers whose first batch waits until the coordinator has verified its transaction; a marker voids that.

Without this a batch could begin a transaction that has ended meanwhile, and nobody would ever end it (KIP-890).
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Verification:
    """A question to the coordinator that batches wait for."""

    epoch: int
    has_own_epoch: bool
    """True if each transaction has an epoch of its own (transaction.version 2)."""
    waiting: int = 0
    """The number of batches that wait for it."""


class Verifications:
    """The verifications by producer id. A batch whose verification has vanished must be verified again."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Verification] = {}

    def begin(self, producer_id: int, epoch: int, *, has_own_epoch: bool) -> Verification:
        """Return the verification for this epoch; all batches of the producer share it."""
        known = self._open.get(producer_id)
        if known is None or known.epoch < epoch:
            known = self._open[producer_id] = Verification(epoch, has_own_epoch)
        known.waiting += 1
        return known

    def is_current(self, producer_id: int, verification: Verification) -> bool:
        """Return whether the producer's transaction has not ended since the verification began."""
        return self._open.get(producer_id) is verification

    def drop(self, producer_id: int, verification: Verification) -> None:
        """Subtract a batch whose wait is over; forget the verification after the last one."""
        verification.waiting -= 1
        if not verification.waiting and self.is_current(producer_id, verification):
            del self._open[producer_id]

    def appended(self, producer_id: int) -> None:
        """The transaction is open: nothing is left to verify."""
        self._open.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Void earlier verifications after a marker, unless they are for the next transaction."""
        known = self._open.get(producer_id)
        if known is not None and not (known.has_own_epoch and known.epoch == epoch):
            del self._open[producer_id]
