"""Features of the cluster with their levels (KIP-584): what this version supports, and what new clusters begin with.

A level is finalized, which means that every broker may go by it, when all registered brokers support it and somebody
asks for that (UpdateFeatures); documents of a form that came with a level are written only once it is finalized.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_core.metadata_level import METADATA_LEVEL, METADATA_LEVEL_MAX, METADATA_LEVEL_MIN


class SupportedLevels(NamedTuple):
    """The lowest and the highest level of a feature, both inclusive."""

    lowest: int
    highest: int


Supported = Mapping[str, SupportedLevels]

SPLIT_TOPICS_LEVEL: Final = 2
TRANSACTIONS_LEVEL: Final = 3
ELR: Final = "eligible.leader.replicas.version"
"""Eligible leader replicas (KIP-966) are always on, so there is no level 0."""
TRANSACTION_VERSION: Final = "transaction.version"
"""2: each transaction has an epoch of its own, and partitions join it with their first batch (KIP-890)."""

SUPPORTED: Final[Supported] = {
    ELR: SupportedLevels(1, 1),
    METADATA_LEVEL: SupportedLevels(METADATA_LEVEL_MIN, METADATA_LEVEL_MAX),
    TRANSACTION_VERSION: SupportedLevels(0, 2),
}
BASE: Final[Supported] = {ELR: SupportedLevels(1, 1), METADATA_LEVEL: SupportedLevels(1, 1)}
"""The levels that a broker supports if its registration names none: it is of a version before levels."""
FIRST_LEVELS: Final[Mapping[str, int]] = {name: levels.lowest for name, levels in BASE.items()}
"""The levels of a cluster that was made before there was a document of levels."""
NEW_LEVELS: Final[Mapping[str, int]] = {name: levels.highest for name, levels in SUPPORTED.items()}
"""The levels of a new cluster."""


def transaction_version(finalized: Mapping[str, int]) -> int:
    """Return the level of transaction.version; 0 in a cluster that is older than this feature."""
    return finalized.get(TRANSACTION_VERSION, 0)


def unsupported(finalized: Mapping[str, int]) -> str | None:
    """Return why this version cannot be part of a cluster with these levels; None if it can."""
    for name, level in sorted(finalized.items()):
        levels = SUPPORTED.get(name)
        if levels is None:
            return f"feature {name} is finalized at level {level}, and this version does not know it"
        if not levels.lowest <= level <= levels.highest:
            allowed = f"{levels.lowest} to {levels.highest}"
            return f"feature {name} is finalized at level {level}; this version supports {allowed}"
    return None
