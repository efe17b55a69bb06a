"""The decisions on the settings of the whole cluster: levels of features, and quotas of clients.

UpdateFeatures finalizes levels of features (KIP-584). The entities that can have client quotas are a user, a client id,
a user with a client id, and an IP address (KIP-546). The name None stands for the default entity of its type.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.metadata.documents import CLIENT_QUOTAS_KEY, AnyDocument, encode
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    BASE,
    CONSUMER_GROUPS_LEVEL,
    GROUP_VERSION,
    SHARE_GROUPS_LEVEL,
    SHARE_VERSION,
    SPLIT_TOPICS_LEVEL,
    SUPPORTED,
    TRANSACTION_VERSION,
    TRANSACTIONS_LEVEL,
    BrokerRegistration,
    ClientQuotasDocument,
    EntityQuotas,
    SupportedLevels,
)
from barnabas_core.config.definitions import first_names
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.errors import ApiError, ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_OF_CLIENTS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
_OF_ADDRESSES: Final = (CONNECTION_CREATION_RATE,)
_WHOLE_MAX: Final[Mapping[str, int]] = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The largest allowed value by quota, for the quotas whose value must be a whole number."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""The (type, name) pairs of an entity, sorted by type."""
Quotas = Mapping[str, float]
AllQuotas = Mapping[QuotaEntity, Quotas]


class QuotaChange(NamedTuple):
    """A quota to set, or to remove if `value` is None."""

    key: str
    value: float | None


def checked_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the quota entity with these pairs of entity type and name. Raises ApiError if the entity is invalid."""
    types = [kind for kind, _ in parts]
    if not parts:
        raise _invalid("the entity is empty; name a user, a client-id or an ip")
    for kind, name in parts:
        if kind not in ENTITY_TYPES:
            raise _invalid(f"entity type {kind!r} is unknown; allowed: {', '.join(ENTITY_TYPES)}")
        if types.count(kind) > 1:
            raise _invalid(f"entity type {kind} is given twice")
        if name == "":
            raise _invalid(f"the {kind} has an empty name; null stands for the default entity")
        if kind == IP and name is not None:
            _check_address(name)
    if IP in types and len(types) > 1:
        raise _invalid("the entity type ip cannot be combined with user or client-id")
    return _entity(parts)


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    return tuple(sorted(parts, key=lambda part: part[0]))


def _check_address(name: str) -> None:
    try:
        ip_address(name)
    except ValueError as error:
        raise _invalid(f"ip {name!r} is not a valid IPv4 or IPv6 address") from error


def altered(known: Quotas, entity: QuotaEntity, changes: Iterable[QuotaChange]) -> Quotas:
    """Return the quotas of an entity after these changes. Raises ApiError if a change is invalid."""
    allowed = _OF_ADDRESSES if entity[0][0] == IP else _OF_CLIENTS
    quotas, seen = dict(known), set()
    for key, value in changes:
        if key not in allowed:
            raise _invalid(
                f"quota {key!r} is unknown for the entity type {entity[0][0]}; allowed: {', '.join(allowed)}"
            )
        if key in seen:
            raise _invalid(f"quota {key} is given twice")
        seen.add(key)
        if value is None:
            quotas.pop(key, None)
        else:
            _check_value(key, value)
            quotas[key] = value
    return quotas


def _check_value(key: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key}={value} is invalid; the quota must be a finite number above 0")
    whole_max = _WHOLE_MAX.get(key)
    if whole_max is not None and (value != math.floor(value) or value > whole_max):
        raise _invalid(f"{key}={value} is invalid; the quota must be a whole number from 1 to {whole_max}")


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


class ClientQuota(msgspec.Struct, frozen=True):
    """The limit of a client, and the entity that sets the limit."""

    limit: float
    entity: QuotaEntity


def quota_of_client(quotas: AllQuotas, key: str, user: str, client_id: str) -> ClientQuota | None:
    """Return the quota `key` of a client from the most specific entity that sets the quota, or None."""
    for entity in (
        ((CLIENT_ID, client_id), (USER, user)),
        ((CLIENT_ID, None), (USER, user)),
        ((USER, user),),
        ((CLIENT_ID, client_id), (USER, None)),
        ((CLIENT_ID, None), (USER, None)),
        ((USER, None),),
        ((CLIENT_ID, client_id),),
        ((CLIENT_ID, None),),
    ):
        limit = quotas.get(entity, {}).get(key)
        if limit is not None:
            return ClientQuota(limit, entity)
    return None


def connection_rates(quotas: AllQuotas) -> dict[str | None, float]:
    """Return the connection rate limit of each IP address; the key None has the limit of all other addresses."""
    rates: dict[str | None, float] = {}
    for entity, of_entity in quotas.items():
        (kind, name), limit = entity[0], of_entity.get(CONNECTION_CREATION_RATE)
        if kind == IP and limit is not None:
            rates[None if name is None else _plain(name)] = limit
    return rates


def _plain(name: str) -> str:
    address = ip_address(name)
    return str(getattr(address, "ipv4_mapped", None) or address)


def by_entity(document: ClientQuotasDocument) -> dict[QuotaEntity, EntityQuotas]:
    """Return the stored quotas by entity."""
    return {_entity(each.entity.items()): each for each in document.entities}


def client_quotas(image: MetadataImage) -> AllQuotas:
    """Return the quotas in the metadata image, by entity."""
    document = image.document(CLIENT_QUOTAS_KEY)
    if not isinstance(document, ClientQuotasDocument):
        return {}
    return {entity: each.quotas for entity, each in by_entity(document).items()}


NAMED_MAX: Final = 3
NO_USERS: Final[Mapping[str, Sequence[str]]] = {}


class UpgradeType(IntEnum):
    """The type of an upgrade, with the numbers of Kafka's protocol. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(msgspec.Struct, frozen=True):
    """A feature and the level to finalize."""

    name: str
    level: int
    upgrade_type: UpgradeType


IMPLIED: Final[Mapping[str, int]] = {
    TRANSACTION_VERSION: TRANSACTIONS_LEVEL,
    GROUP_VERSION: CONSUMER_GROUPS_LEVEL,
    SHARE_VERSION: SHARE_GROUPS_LEVEL,
}
"""The features that the metadata level switches on and off, each with the first level that has it."""
_USES: Final[Mapping[str, str]] = {
    TRANSACTION_VERSION: "transactions are open ({}); end these transactions first",
    GROUP_VERSION: "groups use the consumer protocol ({}); "
    "restart their members with group.protocol=classic, or delete these groups first",
    SHARE_VERSION: "there are share groups ({}); delete these groups first",
}
"""The reasons why the level of a feature cannot be lowered while something uses it."""


def with_implied(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> Sequence[FeatureUpdate]:
    """Return the updates, plus updates of the features in IMPLIED that the metadata level gains or loses.

    No update is added for a feature that `updates` itself changes. At a metadata level without the feature, its level
    becomes 0, because a broker of that metadata level cannot start with a higher one. At a metadata level with the
    feature, it becomes the highest supported level.
    """
    named = {update.name: update for update in updates}
    change = named.get(METADATA_LEVEL)
    if change is None:
        return updates
    added = []
    for feature, first_level in IMPLIED.items():
        is_there = change.level >= first_level
        if feature not in named and is_there != (finalized.get(METADATA_LEVEL, 0) >= first_level):
            level = SUPPORTED[feature].highest if is_there else 0
            added.append(FeatureUpdate(feature, level, change.upgrade_type))
    return (*updates, *added)


def lowered(finalized: Mapping[str, int], updates: Sequence[FeatureUpdate]) -> list[str]:
    """Return the features of IMPLIED whose level the updates lower, which is refused while something uses them."""
    return [
        each.name
        for each in with_implied(finalized, updates)
        if each.name in IMPLIED and each.level < finalized.get(each.name, 0)
    ]


def decide_update_features(
    finalized: Mapping[str, int],
    updates: Sequence[FeatureUpdate],
    registered: Sequence[BrokerRegistration],
    split_topics: Sequence[str],
    users: Mapping[str, Sequence[str]] = NO_USERS,
) -> dict[str, int]:
    """Return the finalized levels after the updates. Raises ApiError(INVALID_UPDATE_VERSION) if an update is refused.

    `registered` includes brokers that are not alive, because a broker that does not support a finalized level could not
    start again. The metadata of each topic in `split_topics` is split over several keys. While there are such topics, a
    metadata level below SPLIT_TOPICS_LEVEL is refused, because brokers at that level would see fewer partitions.
    `users` has the names of what uses a feature whose level is lowered: open transactions, which a lower level ends by
    other rules, and share groups and groups of the consumer protocol, which no lower level serves. While there are
    any, the downgrade is refused. A feature at level 0 is left out of the result.
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
        if update.level < known and users.get(update.name):
            raise _refusal(update, _USES[update.name].format(first_names(users[update.name])))
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


BYTES_MAX: Final = 768 * 1024
"""The largest size of the quotas document, so that the document fits into a Kubernetes object."""


def decide_client_quotas(
    known: AnyDocument | None, changes: Mapping[QuotaEntity, Sequence[QuotaChange]]
) -> tuple[ClientQuotasDocument, dict[QuotaEntity, ApiError]]:
    """Return the changed quotas, and an error for each entity whose change is refused.

    If all quotas together become too large, every change is refused.
    """
    before = known if isinstance(known, ClientQuotasDocument) else ClientQuotasDocument(entities=())
    found = by_entity(before)
    failures: dict[QuotaEntity, ApiError] = {}
    for entity, wanted in changes.items():
        held = found.get(entity, EntityQuotas(entity=dict(entity), quotas={}))
        try:
            quotas = altered(held.quotas, entity, wanted)
        except ApiError as error:
            failures[entity] = error
            continue
        if quotas:
            found[entity] = msgspec.structs.replace(held, quotas=dict(quotas))
        else:
            found.pop(entity, None)
    after = msgspec.structs.replace(before, entities=tuple(found.values()))
    size = len(encode(after))
    if size <= max(BYTES_MAX, len(encode(before))):
        return after, failures
    message = (
        f"all quotas together would take {size} bytes, but at most {BYTES_MAX} are allowed: use quotas of default "
        "entities instead of quotas for single names"
    )
    return before, dict.fromkeys(changes, ApiError(ErrorCode.INVALID_REQUEST, message)) | failures
