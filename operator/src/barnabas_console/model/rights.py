"""The rights of a user to each resource, and the ACLs that decide about them by the code of the brokers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from ipaddress import ip_address
from typing import NamedTuple

from barnabas_console.model.inputs import InvalidInput, ListQuery, Part, part_of
from barnabas_console.model.snapshot import Snapshot, is_hidden
from barnabas_core.acls import (
    ANY_NAME,
    ANY_USER,
    CLUSTER_NAME,
    OPERATIONS,
    AclEntry,
    AclIndex,
    AclOperation,
    AclPattern,
    AclSubject,
    Decision,
    PatternType,
    ResourceType,
    plain_host,
)

ALLOWED, DENIED, NO_RULE = "allowed", "denied", "no rule"
"""The decisions; without a rule about a resource, a setting of the brokers decides that they do not tell."""
Rule = tuple[AclPattern, AclEntry]


class AclRow(NamedTuple):
    """A rule about a principal: the operation that it allows or denies, and the resource."""

    principal: str
    permission: str
    operation: str
    resource_type: str
    resource: str
    pattern: str
    host: str


class RightsRow(NamedTuple):
    """The operations on a resource that one rule decides; `rule` is None if no rule allows or denies them.

    A resource may also be a pattern, which stands for all names that no other row has.
    """

    resource_type: str
    resource: str
    pattern: str
    decision: str
    operations: tuple[str, ...]
    rule: AclRow | None


def row_of(pattern: AclPattern, entry: AclEntry) -> AclRow:
    """Return a rule as a row."""
    return AclRow(
        principal=entry.principal,
        permission=word(entry.permission),
        operation=word(entry.operation),
        resource_type=word(pattern.resource_type),
        resource=pattern.name,
        pattern=word(pattern.pattern_type),
        host=entry.host,
    )


def checked_host(text: str) -> str:
    """Return the address of a client as rules are compared with it; empty means one that no rule names."""
    try:
        return plain_host(str(ip_address(text))) if text else ""
    except ValueError as error:
        raise InvalidInput("host", text, "an IP address, or nothing for one that no rule names") from error


def word(value: IntEnum) -> str:
    """Return the name of a code of Kafka as pages show it."""
    return value.name.replace("_", " ").lower()


def rules_of(acls: Iterable[Rule], asker: AclSubject) -> list[AclRow]:
    """Return the rules that name the user, and those for all users."""
    names = dict.fromkeys((asker.principal, ANY_USER))
    return [row_of(*each) for name in names for each in acls if each[1].principal == name]


def rights_part(acls: Sequence[Rule], asker: AclSubject, snapshot: Snapshot, query: ListQuery) -> Part:
    """Return the asked page of resources, with what the user may do, what it may not, and the rules that decide."""
    topics = [each.name for each in snapshot.topics if query.all or not is_hidden(each.name)]
    part = part_of(resources_of(acls, asker, topics, snapshot.seen.groups), query, lambda each: each.name)
    return part._replace(rows=list(rights_to(part.rows, asker, acls)))


def resources_of(
    acls: Iterable[Rule], asker: AclSubject, topics: Iterable[str], groups: Iterable[str]
) -> list[AclPattern]:
    """Return the topics, the groups, the cluster and the patterns in the user's rules, in order.

    For each type of resource the name `*` stands for all others.
    """
    concerned, literal = (asker.principal, ANY_USER), PatternType.LITERAL
    named = {pattern for pattern, entry in acls if entry.principal in concerned and pattern.resource_type in OPERATIONS}
    seen = {AclPattern(ResourceType.TOPIC, each, literal) for each in topics}
    seen |= {AclPattern(ResourceType.GROUP, each, literal) for each in groups}
    others = {
        AclPattern(each, CLUSTER_NAME if each is ResourceType.CLUSTER else ANY_NAME, literal) for each in OPERATIONS
    }
    return sorted(named | seen | others)


def rights_to(resources: Iterable[AclPattern], asker: AclSubject, acls: Sequence[Rule]) -> Iterator[RightsRow]:
    """Yield for each resource the decisions about all operations, those by the same rule together."""
    entries = defaultdict[AclPattern, list[AclEntry]](list)
    for pattern, entry in acls:
        entries[pattern].append(entry)
    index = AclIndex()
    for pattern, some in entries.items():
        index.put(pattern, some)
    for each in resources:
        yield from _rights_to(each, asker, index)


def _rights_to(resource: AclPattern, asker: AclSubject, index: AclIndex) -> Iterator[RightsRow]:
    found = defaultdict[Decision | None, list[AclOperation]](list)
    for operation in OPERATIONS[resource.resource_type]:
        found[index.decision(asker, operation, resource.resource_type, resource.name)].append(operation)
    for decision, operations in found.items():
        rule = None if decision is None else decision.rule
        yield RightsRow(
            resource_type=word(resource.resource_type),
            resource=resource.name,
            pattern=word(resource.pattern_type),
            decision=NO_RULE if decision is None else ALLOWED if decision.is_allowed else DENIED,
            operations=tuple(map(word, operations)),
            rule=None if rule is None else row_of(*rule),
        )
