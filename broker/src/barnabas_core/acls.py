"""The enums of ACLs with Kafka's codes, and the decisions by the ACLs of a cluster.

As in Kafka's StandardAuthorizer, any DENY wins over any ALLOW, and `allow.everyone.if.no.acl.found` decides for a
resource without ACLs.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from itertools import chain
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
ANY_NAME: Final = "*"
"""The name of a literal ACL that applies to all resources of its type."""
ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"
MEANINGS: Final = {"*": "all users", "ANONYMOUS": "all clients that have not authenticated"}
"""The names of principals that are not one user, each with those that it stands for in ACLs and super.users."""


def not_one_user(name: str) -> str:
    """Return what is allowed in place of a name in MEANINGS."""
    return f"allowed: the name of one user, because in Kafka User:{name} stands for {MEANINGS[name]}"


class AclOperation(IntEnum):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The type of a resource to which ACLs apply."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which the name of an ACL matches resources; ANY and MATCH occur only in filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The effect of an ACL on matching requests."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclPattern(NamedTuple):
    """The pattern of the resources to which an ACL applies."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType


class AclEntry(NamedTuple):
    """A rule that allows or denies a principal an operation from a host."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


IMPLYING: Final[Mapping[AclOperation, frozenset[AclOperation]]] = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS}),
}
"""A map from an operation to the operations that imply it: an ACL that allows WRITE also allows DESCRIBE.

An ACL that denies an operation denies only that operation.
"""

OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: tuple(map(AclOperation, (3, 4, 5, 6, 7, 8, 10, 11))),
    ResourceType.GROUP: tuple(map(AclOperation, (3, 6, 8, 10, 11))),
    ResourceType.CLUSTER: tuple(map(AclOperation, (5, 7, 8, 9, 10, 11, 12))),
    ResourceType.TRANSACTIONAL_ID: tuple(map(AclOperation, (4, 8, 15))),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: tuple(map(AclOperation, (13, 14))),
}
"""The operations on a resource, by its type."""


def plain_host(host: str) -> str:
    """Return the normal form of an IP address, so that the host of an ACL and that of a client can be compared.

    Brackets and the zone are left out, and an IPv4-mapped IPv6 address becomes an IPv4 address. An IPv6 address that
    Java has printed in full (`0:0:0:0:0:0:0:1`) is shortened. A host that is not an address is returned unchanged.
    """
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(inner or address)


Entries = Collection[AclEntry]


class AclSubject(NamedTuple):
    """The client for which a decision is made: its principal and its IP address."""

    principal: str
    host: str


class Decision(NamedTuple):
    """A decision about an operation, and the ACL behind it; without one, no ACL allows the operation."""

    is_allowed: bool
    rule: tuple[AclPattern, AclEntry] | None = None


NO_ACL_ALLOWS: Final = Decision(is_allowed=False)


class AclIndex:
    """The ACL entries by resource pattern.

    The cost of finding the ACLs of a resource grows with the number of different prefix lengths, not with the number of
    ACLs. The cost of `allows_any` grows with the number of resource patterns that have an ACL for the principal or
    User:*.
    """

    def __init__(self) -> None:
        self._entries: dict[AclPattern, Entries] = {}
        self._of_principal: dict[str, dict[AclPattern, None]] = {}
        """The resource patterns that have an ACL for a principal, by principal."""
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}

    def put(self, pattern: AclPattern, entries: Entries) -> None:
        """Replace all ACLs of a resource pattern; if `entries` is empty, remove the pattern."""
        self._count_prefix(pattern, -1 if pattern in self._entries else 0)
        for principal in {each.principal for each in self._entries.pop(pattern, ())}:
            del self._of_principal[principal][pattern]
            if not self._of_principal[principal]:
                del self._of_principal[principal]
        if entries:
            self._entries[pattern] = entries
            self._count_prefix(pattern, 1)
            for principal in {each.principal for each in entries}:
                self._of_principal.setdefault(principal, {})[pattern] = None

    def _count_prefix(self, pattern: AclPattern, change: int) -> None:
        if pattern.pattern_type is PatternType.PREFIXED and change:
            lengths = self._prefix_lengths.setdefault(pattern.resource_type, Counter())
            lengths[len(pattern.name)] += change
            lengths += Counter()  # Adding an empty Counter removes lengths with the count 0.

    def _about(self, resource_type: ResourceType, name: str) -> Iterator[AclPattern]:
        """Yield the patterns that match a resource, whether they have entries or not."""
        yield AclPattern(resource_type, name, PatternType.LITERAL)
        if name != ANY_NAME:
            yield AclPattern(resource_type, ANY_NAME, PatternType.LITERAL)
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                yield AclPattern(resource_type, name[:length], PatternType.PREFIXED)

    def patterns(self) -> Iterator[tuple[AclPattern, Entries]]:
        """Yield all resource patterns with the ACL entries of each pattern."""
        yield from self._entries.items()

    def allows(
        self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str, *, if_none: bool
    ) -> bool:
        """True if the client may perform the operation on the resource.

        `if_none` is the result for a resource without ACLs.
        """
        found = self.decision(asker, operation, resource_type, name)
        return if_none if found is None else found.is_allowed

    def decision(
        self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> Decision | None:
        """Return the decision about an operation on a resource; None if the resource has no ACLs."""
        implying = IMPLYING.get(operation, frozenset({operation}))
        found: Decision | None = None
        for pattern in self._about(resource_type, name):
            for entry in self._entries.get(pattern, ()):
                found = found or NO_ACL_ALLOWS
                if not is_of(entry, asker):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in (operation, AclOperation.ALL):
                        return Decision(is_allowed=False, rule=(pattern, entry))
                elif entry.operation is AclOperation.ALL or entry.operation in implying:
                    found = found if found.is_allowed else Decision(is_allowed=True, rule=(pattern, entry))
        return found

    def allows_any(self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType) -> bool:
        """True if an ALLOW ACL permits the operation on at least one resource of the type.

        An ALLOW ACL is ignored if a single DENY ACL covers all resources of the ALLOW ACL.
        """
        denied = set(self._of(asker, operation, resource_type, Permission.DENY))
        if AclPattern(resource_type, ANY_NAME, PatternType.LITERAL) in denied:
            return False
        return any(
            not _is_covered(pattern, denied) for pattern in self._of(asker, operation, resource_type, Permission.ALLOW)
        )

    def _of(
        self, asker: AclSubject, operation: AclOperation, resource_type: ResourceType, permission: Permission
    ) -> Iterator[AclPattern]:
        for pattern in chain(*(self._of_principal.get(each, ()) for each in (asker.principal, ANY_USER))):
            if pattern.resource_type is resource_type and any(
                each.permission is permission and each.operation in (operation, AclOperation.ALL) and is_of(each, asker)
                for each in self._entries[pattern]
            ):
                yield pattern


def is_of(entry: AclEntry, asker: AclSubject) -> bool:
    """True if the entry applies to the client."""
    return entry.principal in (asker.principal, ANY_USER) and (
        entry.host == ANY_HOST or plain_host(entry.host) == asker.host
    )


_PREFIXED: Final = PatternType.PREFIXED


def _is_covered(allowed: AclPattern, denied: Collection[AclPattern]) -> bool:
    """True if a DENY pattern covers all resources of the ALLOW pattern."""
    if allowed in denied:
        return True
    if allowed.pattern_type is PatternType.LITERAL and allowed.name == ANY_NAME:
        return False
    prefixes = (allowed.name[:length] for length in range(len(allowed.name) + 1))
    return any(AclPattern(allowed.resource_type, prefix, _PREFIXED) in denied for prefix in prefixes)
