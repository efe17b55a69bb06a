"""The enums of access control with Kafka's codes, and the operations that imply others."""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv6Address, ip_address
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
ANY_NAME: Final = "*"
"""The name of a literal ACL that is about all resources of its type."""
ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"


class AclOperation(IntEnum):
    """The operation on a resource."""

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
    """A kind of thing that ACLs are about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which a name matches resources. ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The effect of an ACL."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclPattern(NamedTuple):
    """The resources that an ACL is about."""

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
"""The operations whose allowance implies this one. A denial implies no other denial."""

OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: tuple(map(AclOperation, (3, 4, 5, 6, 7, 8, 10, 11))),
    ResourceType.GROUP: tuple(map(AclOperation, (3, 6, 8, 10, 11))),
    ResourceType.CLUSTER: tuple(map(AclOperation, (5, 7, 8, 9, 10, 11, 12))),
}
"""The operations in answers about a client's rights, by type of the resource."""


def plain_host(host: str) -> str:
    """Return an address in its one normal form, in which ACLs and clients have it.

    Java prints IPv6 in full (`0:0:0:0:0:0:0:1`), and IPv4 within IPv6 as IPv4. What is no address stays as it is.
    """
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(inner or address)
