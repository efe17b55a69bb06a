"""The decision on UpdateFeatures, which finalizes levels of features (KIP-584)."""

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
    """The type of an upgrade, with the numbers of Kafka's protocol. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and the level to finalize."""

    name: str
    level: int
    upgrade_type: UpgradeType


def with_implied(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> Sequence[FeatureUpdate]:
    """Return the updates, plus an update of `transaction.version` if the metadata level gains or loses transactions.

    No update is added if `updates` itself changes `transaction.version`. At a metadata level without transactions,
    `transaction.version` becomes 0, because a broker of that level cannot start with a higher `transaction.version`. At
    a level with transactions, it becomes the highest supported version.
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
    """True if the updates lower `transaction.version`, which is refused while transactions are open."""
    before = finalized.get(TRANSACTION_VERSION, 0)
    return any(each.name == TRANSACTION_VERSION and each.level < before for each in with_implied(finalized, updates))


def decide_update_features(
    finalized: Mapping[str, int],
    updates: Sequence[FeatureUpdate],
    registered: Sequence[BrokerRegistration],
    split_topics: Sequence[str],
    open_transactions: Sequence[str] = (),
) -> dict[str, int]:
    """Return the finalized levels after the updates. Raises ApiError(INVALID_UPDATE_VERSION) if an update is refused.

    `registered` includes brokers that are not alive, because a broker that does not support a finalized level could not
    start again. The metadata of each topic in `split_topics` is split over several keys. While there are such topics, a
    metadata level below SPLIT_TOPICS_LEVEL is refused, because brokers at that level would see fewer partitions. A
    downgrade of `transaction.version` is refused while there are `open_transactions`, because the lower version ends
    transactions by other rules. A feature at level 0 is left out of the result.
    """
    levels = dict(finalized)
    for update in with_implied(finalized, updates):
        if update.name not in SUPPORTED:
            raise _refusal(update, f"the supported features are {', '.join(sorted(SUPPORTED))}")
        known = levels.get(update.name, 0)
        if update.level < known and update.upgrade_type is UpgradeType.UPGRADE:
            raise _refusal(update, f"the finalized level {known} is higher, and an upgrade cannot lower the level")
        if update.name == METADATA_LEVEL and update.level < SPLIT_TOPICS_LEVEL and split_topics:
            named = ", ".join(split_topics[:NAMED_MAX])
            raise _refusal(
                update,
                f"the requested level does not support topics whose metadata is split over several keys ({named}); "
                "delete these topics first",
            )
        if update.name == TRANSACTION_VERSION and update.level < known and open_transactions:
            named = ", ".join(open_transactions[:NAMED_MAX])
            raise _refusal(update, f"transactions are open ({named}); end these transactions first")
        _check_range(update, "this broker", SUPPORTED[update.name])
        for registration in registered:
            supported = {name: SupportedLevels(*each) for name, each in registration.features.items()} or BASE
            who = f"broker {registration.broker_id}{' (not alive)' if registration.fenced else ''}"
            _check_range(update, who, supported.get(update.name, SupportedLevels(0, 0)))
        levels[update.name] = update.level
    return {name: level for name, level in levels.items() if level > 0}


def _check_range(update: FeatureUpdate, who: str, levels: SupportedLevels) -> None:
    if not levels.lowest <= update.level <= levels.highest:
        raise _refusal(update, f"{who} supports levels {levels.lowest} to {levels.highest}")


def _refusal(update: FeatureUpdate, why: str) -> ApiError:
    message = f"Invalid update version {update.level} for feature {update.name}: {why}."
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, message)
