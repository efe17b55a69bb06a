"""Check the ACLs of CreateAcls requests, and match ACLs against the filters of DescribeAcls and DeleteAcls."""

from typing import Final, NamedTuple

from barnabas_core.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
    plain_host,
)
from barnabas_core.errors import ApiError, ErrorCode

_TYPES: Final = ", ".join(each.name for each in ResourceType if each > ResourceType.ANY)
_OPERATIONS: Final = ", ".join(each.name for each in AclOperation if each > AclOperation.ANY)


def check_new(pattern: AclPattern, entry: AclEntry) -> None:
    """Raise ApiError if the pattern and the entry do not form a valid ACL."""
    if pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        _refuse("resource_name", pattern.name, f"{CLUSTER_NAME}, the only name of a resource of type CLUSTER")
    if not pattern.name:
        _refuse("resource_name", pattern.name, "a non-empty text")
    if pattern.resource_type is ResourceType.ANY:
        _refuse("resource_type", "ANY", _TYPES)
    if pattern.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        _refuse("pattern_type", pattern.pattern_type.name, "LITERAL, PREFIXED")
    if entry.operation is AclOperation.ANY:
        _refuse("operation", "ANY", _OPERATIONS)
    if entry.permission is Permission.ANY:
        _refuse("permission_type", "ANY", "DENY, ALLOW")
    if ":" not in entry.principal:
        _refuse("principal", entry.principal, "TYPE:NAME, such as User:alice")
    if not entry.host:
        _refuse("host", entry.host, "an IP address or *")


def _refuse(field: str, value: str, allowed: str) -> None:
    raise ApiError(ErrorCode.INVALID_REQUEST, f"the ACL has {field}={value!r}; allowed: {allowed}")


class AclFilter(NamedTuple):
    """The filter of a DescribeAcls or DeleteAcls request; ANY and None match all values."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: Permission

    def finds(self, pattern: AclPattern, entry: AclEntry) -> bool:
        """True if the filter matches the ACL; the operation ALL matches only itself."""
        return (
            self.finds_pattern(pattern)
            and self.principal in (None, entry.principal)
            and (self.host is None or plain_host(self.host) == plain_host(entry.host))
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def finds_pattern(self, pattern: AclPattern) -> bool:
        """True if the filter can match ACLs with the pattern."""
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return False
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name == ANY_NAME
