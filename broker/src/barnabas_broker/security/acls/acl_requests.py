"""Read and check the ACLs of CreateAcls requests, and the filters of DescribeAcls and DeleteAcls requests."""

import functools
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

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

Word = TypeVar("Word", bound=IntEnum)
_TYPES: Final = ", ".join(each.name for each in ResourceType if each > ResourceType.ANY)
_OPERATIONS: Final = ", ".join(each.name for each in AclOperation if each > AclOperation.ANY)


def new_acl(message: Any) -> tuple[AclPattern, AclEntry]:
    """Return one ACL of a CreateAcls request. Raises ApiError if it is not a valid ACL."""
    pattern = AclPattern(
        _known(ResourceType, message.resource_type, "resource_type"),
        message.resource_name,
        _known(PatternType, message.resource_pattern_type, "resource_pattern_type"),
    )
    entry = AclEntry(
        message.principal,
        message.host,
        _known(AclOperation, message.operation, "operation"),
        _known(Permission, message.permission_type, "permission_type"),
    )
    _check_new(pattern, entry)
    return pattern, entry


def _check_new(pattern: AclPattern, entry: AclEntry) -> None:
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


@functools.cache
def _by_code(words: type[IntEnum]) -> dict[int, IntEnum]:
    return {int(word): word for word in words if word.name != "UNKNOWN"}


def _known(words: type[Word], code: int, field: str) -> Word:
    """Return the member of the enum `words` with this code. Raises ApiError for UNKNOWN (0) and undefined codes."""
    known = _by_code(words)
    if code not in known:
        allowed = ", ".join(f"{number} ({word.name})" for number, word in known.items())
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{field}={code} is not valid in an ACL; allowed: {allowed}")
    return words(code)


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
            self._finds_pattern(pattern)
            and self.principal in (None, entry.principal)
            and (self.host is None or plain_host(self.host) == plain_host(entry.host))
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _finds_pattern(self, pattern: AclPattern) -> bool:
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


def acl_filter(message: Any) -> AclFilter:
    """Return the filter of a DescribeAcls or DeleteAcls request. Raises ApiError if a field has an unknown code."""
    return AclFilter(
        _known(ResourceType, message.resource_type_filter, "resource_type_filter"),
        message.resource_name_filter,
        _known(PatternType, message.pattern_type_filter, "pattern_type_filter"),
        message.principal_filter,
        message.host_filter,
        _known(AclOperation, message.operation, "operation"),
        _known(Permission, message.permission_type, "permission_type"),
    )
