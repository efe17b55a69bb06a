"""Which levels of features are finalized next (KIP-584)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_broker.metadata.features import BASE, METADATA_LEVEL, SPLIT_TOPICS_LEVEL, SUPPORTED, SupportedLevels
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_core.errors import ApiError, ErrorCode

NAMED_MAX: Final = 3


class UpgradeType(IntEnum):
    """By the protocol's numbers. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature and its new level."""

    name: str
    level: int
    upgrade_type: UpgradeType


def decide_update_features(
    finalized: Mapping[str, int],
    updates: Sequence[FeatureUpdate],
    registered: Sequence[BrokerRegistration],
    split_topics: Sequence[str],
) -> dict[str, int]:
    """All levels as they are then. Raises ApiError(INVALID_UPDATE_VERSION), and then none changes.

    `registered` are all brokers, those too that are away: one that does not know a level could not come back.
    `split_topics` have several documents, which a version of a lower level would take for a topic of fewer partitions.
    """
    levels = dict(finalized)
    for update in updates:
        if update.name not in SUPPORTED:
            raise _refusal(update, f"there are {', '.join(sorted(SUPPORTED))}")
        known = levels.get(update.name, 0)
        if update.level < known and update.upgrade_type is UpgradeType.UPGRADE:
            raise _refusal(update, f"it is at level {known}, and a downgrade has to be asked for")
        if update.name == METADATA_LEVEL and update.level < SPLIT_TOPICS_LEVEL and split_topics:
            named = ", ".join(split_topics[:NAMED_MAX])
            raise _refusal(update, f"topics of many partitions have several documents ({named}); delete them first")
        _check_range(update, "this broker", SUPPORTED[update.name])
        for registration in registered:
            supported = {name: SupportedLevels(*each) for name, each in registration.features.items()} or BASE
            who = f"broker {registration.broker_id}{' (not alive)' if registration.fenced else ''}"
            _check_range(update, who, supported.get(update.name, SupportedLevels(0, 0)))
        levels[update.name] = update.level
    return levels


def _check_range(update: FeatureUpdate, who: str, levels: SupportedLevels) -> None:
    if not levels.lowest <= update.level <= levels.highest:
        raise _refusal(update, f"{who} supports {levels.lowest} to {levels.highest}")


def _refusal(update: FeatureUpdate, why: str) -> ApiError:
    message = f"Invalid update version {update.level} for feature {update.name}: {why}."
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
