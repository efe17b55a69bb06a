"""The counts of how transactions end, which the coordinator and its sender of markers keep since the broker's start."""

from collections import Counter
from dataclasses import dataclass, field

from barnabas_core.errors import ErrorCode


@dataclass(slots=True)
class TransactionCounts:
    """The counts of ended transactions; each counts once, when its end is stored after its last marker."""

    committed: int = 0
    aborted: int = 0
    refused_markers: Counter[ErrorCode] = field(default_factory=Counter)
    """The markers that a partition refused with a final error, by error."""
