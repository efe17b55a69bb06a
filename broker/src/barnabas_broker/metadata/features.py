"""The features of the cluster (KIP-584): the levels that this version supports, and the levels of a new cluster.

UpdateFeatures finalizes a level if all registered brokers support the level. Brokers write metadata in the format of a
level only after the level is finalized.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_core.metadata_level import METADATA_LEVEL, METADATA_LEVEL_MAX, METADATA_LEVEL_MIN


class SupportedLevels(NamedTuple):
    """The lowest and the highest supported level of a feature, both inclusive."""

    lowest: int
    highest: int


Supported = Mapping[str, SupportedLevels]

SPLIT_TOPICS_LEVEL: Final = 2
TRANSACTIONS_LEVEL: Final = 3
CONSUMER_GROUPS_LEVEL: Final = 4
SHARE_GROUPS_LEVEL: Final = 5
ELR: Final = "eligible.leader.replicas.version"
"""The feature of eligible leader replicas (KIP-966), which are always on, so there is no level 0."""
TRANSACTION_VERSION: Final = "transaction.version"
"""The feature of transactions: level 2 gives each transaction its own producer epoch (KIP-890)."""

GROUP_VERSION: Final = "group.version"
"""The feature of groups: level 1 has the consumer protocol (KIP-848)."""
SHARE_VERSION: Final = "share.version"
"""The feature of share groups: level 1 has share groups (KIP-932), level 2 their dead letters (KIP-1191)."""

SUPPORTED: Final[Supported] = {
    ELR: SupportedLevels(1, 1),
    GROUP_VERSION: SupportedLevels(0, 1),
    METADATA_LEVEL: SupportedLevels(METADATA_LEVEL_MIN, METADATA_LEVEL_MAX),
    SHARE_VERSION: SupportedLevels(0, 2),
    TRANSACTION_VERSION: SupportedLevels(0, 2),
}
BASE: Final[Supported] = {ELR: SupportedLevels(1, 1), METADATA_LEVEL: SupportedLevels(1, 1)}
"""The feature levels that a broker supports if its registration has none, as in versions without feature levels."""
FIRST_LEVELS: Final[Mapping[str, int]] = {name: levels.lowest for name, levels in BASE.items()}
"""The feature levels of a cluster without stored levels, because an older version created the cluster."""
NEW_LEVELS: Final[Mapping[str, int]] = {name: levels.highest for name, levels in SUPPORTED.items()}
"""The feature levels of a new cluster."""


def transaction_version(finalized: Mapping[str, int]) -> int:
    """Return the finalized level of transaction.version, or 0 if none is finalized."""
    return finalized.get(TRANSACTION_VERSION, 0)


def has_consumer_groups(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of group.version allows the consumer protocol."""
    return finalized.get(GROUP_VERSION, 0) >= 1


def has_share_groups(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of share.version allows share groups."""
    return finalized.get(SHARE_VERSION, 0) >= 1


def has_dead_letters(finalized: Mapping[str, int]) -> bool:
    """True if the finalized level of share.version allows dead letters of share groups."""
    return finalized.get(SHARE_VERSION, 0) >= 2


def unsupported(finalized: Mapping[str, int]) -> str | None:
    """Return why a broker of this version cannot join a cluster with these levels, or None if it can."""
    for name, level in sorted(finalized.items()):
        levels = SUPPORTED.get(name)
        if levels is None:
            return f"feature {name} is finalized at level {level}, but this broker version does not know the feature"
        if not levels.lowest <= level <= levels.highest:
            allowed = f"{levels.lowest} to {levels.highest}"
            return f"feature {name} is finalized at level {level}, but this broker version supports levels {allowed}"
    return None
