"""The levels of features that are finalized next (KIP-584)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from barnabas_broker.metadata.features import (
    BASE,
    SPLIT_TOPICS_LEVEL,
    SUPPORTED,
    TRANSACTION_VERSION,
    TRANSACTIONS_LEVEL,
    SupportedLevels,
)
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.metadata_level import METADATA_LEVEL

NAMED_MAX: Final = 3


class UpgradeType(IntEnum):
    """The type of an upgrade, by the protocol's numbers. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One feature and its new level."""

    name: str
    level: int
    upgrade_type: UpgradeType


def with_implied(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> Sequence[FeatureUpdate]:
    """Return the updates with the `transaction.version` that a change of the metadata level sets, unless one names it.

    A version that knows no transactions does not start where that feature has a level.
    """
    named = {update.name: update for update in updates}
    change = named.get(METADATA_LEVEL)
    if change is None or TRANSACTION_VERSION in named:
        return updates
    has_transactions = change.level >= TRANSACTIONS_LEVEL
    if has_transactions == (finalized.get(METADATA_LEVEL, 0) >= TRANSACTIONS_LEVEL):
        return updates
    level = SUPPORTED[TRANSACTION_VERSION].highest if has_transactions else 0
    return (*updates, FeatureUpdate(TRANSACTION_VERSION, level, change.upgrade_type))


def lowers_transactions(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> bool:
    """True if the updates lower `transaction.version`: no transaction may be open then."""
    before = finalized.get(TRANSACTION_VERSION, 0)
    return any(each.name == TRANSACTION_VERSION and each.level < before for each in with_implied(finalized, updates))


def decide_update_features(
    finalized: Mapping[str, int],
    updates: Sequence[FeatureUpdate],
    registered: Sequence[BrokerRegistration],
    split_topics: Sequence[str],
    open_transactions: Sequence[str] = (),
) -> dict[str, int]:
    """Return all levels as they are then. Raises ApiError(INVALID_UPDATE_VERSION), and then none changes.

    `registered` are all brokers, those too that are away: one that does not know a level could not come back.
    `split_topics` have several documents, which a version of a lower level would take for a topic of fewer partitions.
    `open_transactions` would be ended by other rules than they were begun by. A feature at level 0 is left out.
    """
    levels = dict(finalized)
    for update in with_implied(finalized, updates):
        if update.name not in SUPPORTED:
            raise _refusal(update, f"there are {', '.join(sorted(SUPPORTED))}")
        known = levels.get(update.name, 0)
        if update.level < known and update.upgrade_type is UpgradeType.UPGRADE:
            raise _refusal(update, f"it is at level {known}, and a downgrade has to be asked for")
        if update.name == METADATA_LEVEL and update.level < SPLIT_TOPICS_LEVEL and split_topics:
            named = ", ".join(split_topics[:NAMED_MAX])
            raise _refusal(update, f"topics of many partitions have several documents ({named}); delete them first")
        if update.name == TRANSACTION_VERSION and update.level < known and open_transactions:
            named = ", ".join(open_transactions[:NAMED_MAX])
            raise _refusal(update, f"transactions are open ({named}); end them first")
        _check_range(update, "this broker", SUPPORTED[update.name])
        for registration in registered:
            supported = {name: SupportedLevels(*each) for name, each in registration.features.items()} or BASE
            who = f"broker {registration.broker_id}{' (not alive)' if registration.fenced else ''}"
            _check_range(update, who, supported.get(update.name, SupportedLevels(0, 0)))
        levels[update.name] = update.level
    return {name: level for name, level in levels.items() if level > 0}


def _check_range(update: FeatureUpdate, who: str, levels: SupportedLevels) -> None:
    if not levels.lowest <= update.level <= levels.highest:
        raise _refusal(update, f"{who} supports {levels.lowest} to {levels.highest}")


def _refusal(update: FeatureUpdate, why: str) -> ApiError:
    message = f"Invalid update version {update.level} for feature {update.name}: {why}."
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
