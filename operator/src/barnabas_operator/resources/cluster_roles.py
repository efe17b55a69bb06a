"""The ClusterRoles that are installed with the CRDs: for brokers, for maintenance, and for users of namespaces.

The chart does not contain these roles, so that brokers keep running when the chart is uninstalled.
"""

from collections.abc import Sequence
from typing import Final

from barnabas_core.credential_secrets import credential_secrets
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.kind import Kind
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import GROUP

RBAC: Final = "rbac.authorization.k8s.io"
BROKER_ROLE: Final = "barnabas-broker"
DRIVER_ROLE: Final = "barnabas-maintenance-driver"
STARTER_ROLE: Final = "barnabas-maintenance-starter"
READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")


def cluster_roles() -> list[JsonObject]:
    """Return all ClusterRoles. Kubernetes aggregates the ClusterRoles for users into `view`, `edit` and `admin`."""
    return [
        _role(BROKER_ROLE, broker_rules()),
        _role(DRIVER_ROLE, _driven()),
        _role(STARTER_ROLE, _started()),
        _role("barnabas-view", _seen(), added_to="view"),
        *(_role(edit_role(kind), _written(kind), added_to=kind.writer) for kind in KINDS.values()),
    ]


def edit_role(kind: Kind) -> str:
    """Return the name of the role that may read and write only resources of this kind."""
    return f"barnabas-{kind.rights}-edit"


def _seen() -> list[JsonObject]:
    kinds = KINDS.values()
    whole, statuses = (each.plural for each in kinds), (f"{each.plural}/status" for each in kinds)
    return [
        _rule(GROUP, READ, *whole, *statuses, *map(_scale, filter(_is_scaled, kinds))),
        _rule("internal.barnabas.dev", READ, "statedocuments"),
    ]


def _written(kind: Kind) -> list[JsonObject]:
    rules = [_rule(GROUP, (*READ, *WRITE), kind.plural), _rule(GROUP, READ, f"{kind.plural}/status")]
    return [*rules, _rule(GROUP, ("get", "update", "patch"), _scale(kind))] if _is_scaled(kind) else rules


def _is_scaled(kind: Kind) -> bool:
    return kind.scaled is not None


def _scale(kind: Kind) -> str:
    return f"{kind.plural}/scale"


def broker_rules() -> list[JsonObject]:
    """Return the RBAC rules for the StateDocuments and Leases of the brokers' metadata store in the namespace.

    The rules cover all Clusters of the namespace, because RBAC cannot match the beginning of a name.
    """
    return [
        _rule("internal.barnabas.dev", (*READ, "create", "patch", "delete"), "statedocuments"),
        _rule("coordination.k8s.io", ("list", "watch", "create", "patch"), "leases"),
    ]


def credential_rules(cluster: str) -> list[JsonObject]:
    """Return the rules for the Secrets with the SCRAM credentials of one Cluster.

    Brokers may not create Secrets, because that right gives access to the token of any ServiceAccount.
    """
    rule = _rule("", ("get", "watch", "patch"), "secrets")
    return [{**rule, "resourceNames": list(credential_secrets(cluster))}]


def _driven() -> list[JsonObject]:
    """Return the rules for Spark's driver, which manages executors and their ConfigMap, and patches its own pod.

    The driver has no right to claims, because some settings make Spark delete them.
    """
    ends = ("delete", "deletecollection")
    return [_rule("", (*READ, "create", "patch", *ends), "pods"), _rule("", ("list", "create", *ends), "configmaps")]


def _started() -> list[JsonObject]:
    """Return the rules for a CronJob's pod, which reads the Cluster, and creates and reads a MaintenanceJob."""
    return [_rule(GROUP, ("get",), "clusters"), _rule(GROUP, ("get", "create"), "maintenancejobs")]


def _rule(group: str, verbs: Sequence[str], *plurals: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(plurals), "verbs": list(verbs)}


def _role(name: str, rules: Sequence[JsonObject], added_to: str | None = None) -> JsonObject:
    meta: JsonObject = {"name": name}
    if added_to is not None:
        meta["labels"] = {f"{RBAC}/aggregate-to-{added_to}": "true"}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": list(rules)}
