"""The counts of how transactions end, which the coordinator and its sender of markers keep since the broker's start."""

from collections import Counter
from dataclasses import dataclass, field

from barnabas_core.errors import ErrorCode


@dataclass(slots=True)
class TransactionCounts:
    """Each transaction counts once, when its end is noted after its last marker."""

    committed: int = 0
    aborted: int = 0
    refused_markers: Counter[ErrorCode] = field(default_factory=Counter)
    """The markers that a partition refuses for ever, by the partition's error."""
