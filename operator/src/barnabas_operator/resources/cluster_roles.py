"""The ClusterRoles that come with the definitions: what brokers may do, and what people may do in their namespaces.

Pure. They never depend on a release of the chart: brokers serve on when the operator is gone.
"""

from collections.abc import Sequence
from typing import Any, Final

Json = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"
BROKER_ROLE: Final = "barnabas-broker"
READ: Final = ("get", "list", "watch")
WRITE: Final = ("create", "update", "patch", "delete", "deletecollection")


def cluster_roles() -> list[Json]:
    """All of them. Kubernetes adds the last three to its roles view, edit and admin; each has what is before it."""
    seen = [
        _rule("barnabas.dev", READ, "clusters", "topics", "clusters/status", "topics/status", "topics/scale"),
        _rule("internal.barnabas.dev", READ, "statedocuments"),
    ]
    scaled = _rule("barnabas.dev", ("update", "patch"), "topics/scale")
    return [
        _role(BROKER_ROLE, broker_rules()),
        _role("barnabas-view", seen, added_to="view"),
        _role("barnabas-edit", [_rule("barnabas.dev", WRITE, "topics"), scaled], added_to="edit"),
        _role("barnabas-admin", [_rule("barnabas.dev", WRITE, "clusters")], added_to="admin"),
    ]


def broker_rules() -> list[Json]:
    """What the metadata store does with documents and leases of the namespace.

    Their names begin with the Cluster's and a dot, which rules cannot express.
    """
    return [
        _rule("internal.barnabas.dev", (*READ, "create", "patch", "delete"), "statedocuments"),
        _rule("coordination.k8s.io", ("list", "watch", "create", "patch"), "leases"),
    ]


def _rule(group: str, verbs: Sequence[str], *plurals: str) -> Json:
    return {"apiGroups": [group], "resources": list(plurals), "verbs": list(verbs)}


def _role(name: str, rules: Sequence[Json], added_to: str | None = None) -> Json:
    meta: Json = {"name": name}
    if added_to is not None:
        meta["labels"] = {f"{RBAC}/aggregate-to-{added_to}": "true"}
    return {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": meta, "rules": list(rules)}
