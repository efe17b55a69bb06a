"""The entities that can have client quotas, and the quotas of each kind of entity (KIP-546).

An entity is a user, a client id, a user with a client id, or an IP address. The name None stands for the default entity
of its type.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from barnabas_broker.metadata.documents import CLIENT_QUOTAS_KEY
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
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


class ClientQuota(NamedTuple):
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
