"""The counters of ended transactions and refused markers since the start of the broker."""

from collections import Counter
from dataclasses import dataclass, field

from barnabas_core.errors import ErrorCode


@dataclass(slots=True)
class TransactionCounts:
    """The counters of committed transactions, of aborted transactions, and of markers that partition leaders refused.

    A transaction is counted when its completion is stored.
    """

    committed: int = 0
    aborted: int = 0
    refused_markers: Counter[ErrorCode] = field(default_factory=Counter)
    """The number of markers that a partition leader refused with a final error, by error code."""
