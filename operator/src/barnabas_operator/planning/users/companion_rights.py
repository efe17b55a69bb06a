"""The ACLs of the lag exporter and of the maintenance runs in a secured Cluster.

Lag exporter and runs authenticate with certificates, as brokers and operator do, but usually are not super users.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.acls import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
)
from barnabas_operator.planning.brokers.pod_security import companion_names, subject
from barnabas_operator.planning.users.cluster_users import PRINCIPAL, Acl
from barnabas_operator.resources.cluster import Cluster

Rights = Mapping[ResourceType, tuple[AclOperation, ...]]
"""The operations that the lag exporter or a maintenance run may carry out, by resource type.

The operations are allowed on all topics and all groups.
"""
_O: Final = AclOperation
LAG_EXPORTER_RIGHTS: Final[Rights] = {
    ResourceType.TOPIC: (_O.DESCRIBE,),
    ResourceType.GROUP: (_O.DESCRIBE,),
    ResourceType.CLUSTER: (_O.DESCRIBE_CONFIGS,),  # The exporter reads offsets.retention.minutes.
}
MAINTENANCE_RIGHTS: Final[Rights] = {
    # A restore creates and writes topics, and an archive with delete_archived deletes records.
    ResourceType.TOPIC: (_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.DESCRIBE_CONFIGS),
    ResourceType.GROUP: (_O.DESCRIBE,),  # Consumers in maintenance jobs look up their coordinator, but commit nothing.
    ResourceType.CLUSTER: (_O.DESCRIBE,),  # Maintenance runs list log dirs and reassignments.
}


def companion_acls(cluster: Cluster) -> Mapping[str, frozenset[Acl]]:
    """Return, by user, the ACLs of the lag exporter and of maintenance runs, or nothing without `spec.authorization`.

    With `allowEveryoneIfNoAclFound`, both users are super users and get no ACLs, because an ACL on a resource would
    deny access to all users without an ACL.
    """
    authorization = cluster.spec.authorization
    if authorization is None:
        return {}
    needs_none = authorization.allow_everyone_if_no_acl_found
    exporter, runs = map(subject, companion_names(cluster))
    rights: dict[str, Rights] = {exporter: LAG_EXPORTER_RIGHTS, runs: MAINTENANCE_RIGHTS}
    if cluster.spec.lag_exporter is None:
        rights[exporter] = {}
    return {user: frozenset() if needs_none else _acls(user, rights_of_user) for user, rights_of_user in rights.items()}


def _acls(user: str, rights: Rights) -> frozenset[Acl]:
    return frozenset(
        Acl(_pattern(kind), AclEntry(f"{PRINCIPAL}{user}", ANY_HOST, operation, Permission.ALLOW))
        for kind, operations in rights.items()
        for operation in operations
    )


def _pattern(kind: ResourceType) -> AclPattern:
    return AclPattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else ANY_NAME, PatternType.LITERAL)
