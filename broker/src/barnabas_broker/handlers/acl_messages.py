"""The conversion of Kafka requests to ACLs and ACL filters."""

from enum import IntEnum
from typing import Any, TypeVar

from barnabas_broker.security.acls.acl_requests import AclFilter
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

Word = TypeVar("Word", bound=IntEnum)


def acl_filter(message: Any) -> AclFilter:
    """Return the filter of a DescribeAcls or DeleteAcls request. Raises ApiError if a field has an unknown code."""
    return AclFilter(
        known(ResourceType, message.resource_type_filter, "resource_type_filter"),
        message.resource_name_filter,
        known(PatternType, message.pattern_type_filter, "pattern_type_filter"),
        message.principal_filter,
        message.host_filter,
        known(AclOperation, message.operation, "operation"),
        known(Permission, message.permission_type, "permission_type"),
    )


def new_acl(message: Any) -> tuple[AclPattern, AclEntry]:
    """Return one ACL of a CreateAcls request. Raises ApiError if a field has an unknown code."""
    pattern = AclPattern(
        known(ResourceType, message.resource_type, "resource_type"),
        message.resource_name,
        known(PatternType, message.resource_pattern_type, "resource_pattern_type"),
    )
    entry = AclEntry(
        message.principal,
        message.host,
        known(AclOperation, message.operation, "operation"),
        known(Permission, message.permission_type, "permission_type"),
    )
    return pattern, entry


def known(words: type[Word], code: int, field: str) -> Word:
    """Return the member of the enum `words` with this code. Raises ApiError for UNKNOWN (0) and undefined codes."""
    if code not in {int(word) for word in words if word.name != "UNKNOWN"}:
        allowed = ", ".join(f"{int(word)} ({word.name})" for word in words if word.name != "UNKNOWN")
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{field}={code} is not valid in an ACL; allowed: {allowed}")
    return words(code)
