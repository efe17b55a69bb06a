"""The ACLs and quotas that a User declares, in Kafka's form."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_core.acls import CLUSTER_NAME, AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_operator.planning.users.cluster_users import PRINCIPAL, SCRAM_256, SCRAM_512, Acl
from barnabas_operator.resources.user import AclRule, User

MECHANISMS: Final[Mapping[str, str]] = {"scram-sha-512": SCRAM_512, "scram-sha-256": SCRAM_256}
QUOTA_KEYS: Final = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
"""Kafka's quota keys; the fields of the spec have the same names."""
_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
    "transactionalId": ResourceType.TRANSACTIONAL_ID,
}
_PATTERNS: Final = {"literal": PatternType.LITERAL, "prefix": PatternType.PREFIXED}
_PERMISSIONS: Final = {"allow": Permission.ALLOW, "deny": Permission.DENY}
_OPERATIONS: Final = {operation.name.replace("_", ""): operation for operation in AclOperation}


def mechanism_of(user: User) -> str | None:
    """Return the SCRAM mechanism of the user, or None if the user has no password."""
    return MECHANISMS.get(user.spec.authentication.type)


def declared_acls(user: User) -> frozenset[Acl]:
    """Return the declared ACLs: one for each operation of each rule."""
    rules = user.spec.authorization.acls if user.spec.authorization is not None else ()
    return frozenset(acl for rule in rules for acl in _acls(f"{PRINCIPAL}{user.username}", rule))


def _acls(principal: str, rule: AclRule) -> Iterator[Acl]:
    name = rule.resource.name or CLUSTER_NAME
    pattern = AclPattern(_TYPES[rule.resource.type], name, _PATTERNS[rule.resource.pattern_type])
    for word in rule.operations:
        operation = _OPERATIONS[word.upper()]
        yield Acl(pattern, AclEntry(principal, rule.host, operation, _PERMISSIONS[rule.type])).plain


def declared_quotas(user: User) -> Mapping[str, float]:
    """Return the declared quotas by their names in Kafka, such as `producer_byte_rate`."""
    quotas = user.spec.quotas
    found = {key: getattr(quotas, key, None) for key in QUOTA_KEYS}
    return {key: float(value) for key, value in found.items() if value is not None}
