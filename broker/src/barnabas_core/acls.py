"""The enums of ACLs with Kafka's codes, and the operations that imply other operations."""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
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
}
"""The operations that a response can list as authorized operations, by resource type."""


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
