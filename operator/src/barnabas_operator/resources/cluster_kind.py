"""The kind `Cluster`: its names, columns of `kubectl get`, and CEL rules.

The ClusterRoles that are installed with the CRDs: for brokers, for maintenance, and for users of namespaces. The
chart does not contain these roles, so that brokers keep running when the chart is uninstalled.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_core.conventions import credential_secrets
from barnabas_operator.resources.cluster import Cluster, ClusterStatus, Listener, Resources, Storage, Volume
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import ALLOWED, GROUP, BrokerServiceTemplate, JsonObject, Kind, Scaled, column
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB, RUN_KEYS, RUN_RULES, MaintenanceEntry
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER

NAME_MAX: Final = 40
PORT_MIN: Final = 1024
"""The lowest port of a listener, because brokers do not run as root."""
MEMORY_MIN: Final = "128Mi"
SIZE_MIN: Final = "1Gi"


def _quantities(field: str) -> JsonObject:
    """Return the CEL rule that a broker's resource requests or limits are quantities.

    The rule replaces a pattern, which would be unreadable in the API server's error.
    """
    wrong = f"self.{field}.filter(name, !isQuantity(string(self.{field}[name])))[0]"
    return {
        "rule": f"!has(self.{field}) || self.{field}.all(name, isQuantity(string(self.{field}[name])))",
        "messageExpression": (
            f"'spec.brokers.resources.{field}.' + {wrong} + ' is ' + string(self.{field}[{wrong}])"
            f" + '; allowed: {ALLOWED}'"
        ),
    }


def _memory(field: str) -> JsonObject:
    memory = f"string(self.{field}['memory'])"
    return {
        "rule": (
            f"!has(self.{field}) || !('memory' in self.{field}) || !isQuantity({memory})"
            f" || quantity({memory}).compareTo(quantity('{MEMORY_MIN}')) >= 0"
        ),
        "messageExpression": (
            f"'spec.brokers.resources.{field}.memory is ' + {memory} + ({memory}.matches('^[0-9]+$') ? ' (bytes)' : '')"
            f" + '; allowed: {MEMORY_MIN} or more'"
        ),
    }


_SIZE: Final = "string(self.size)"
_WITH_BYTES: Final = "^[0-9.]+ ?[kKMGTPE]i?[bB]$"

_RULES: Final[Mapping[type, list[JsonObject]]] = {
    Cluster: [
        {
            "rule": f"size(self.metadata.name) <= {NAME_MAX} && self.metadata.name.matches('^[a-z][^.]*$')",
            "messageExpression": (
                f"'metadata.name is ' + self.metadata.name + '; allowed: at most {NAME_MAX} characters, which"
                " begin with a letter and contain no dot, because the names of Services and pods begin with the name"
                " of the Cluster'"
            ),
        }
    ],
    Resources: [_quantities("requests"), _quantities("limits"), _memory("requests"), _memory("limits")],
    Volume: [
        {
            "rule": f"isQuantity({_SIZE})",
            "messageExpression": (
                f"'spec.storage.volumes size is ' + {_SIZE} + '; allowed: {ALLOWED}'"
                f" + ({_SIZE}.matches('{_WITH_BYTES}') ? '; write ' + {_SIZE}.lowerAscii().replace('b', '')"
                ".replace(' ', '').replace('i', '').upperAscii() + 'i' : '')"
            ),
        },
        {
            "rule": f"!isQuantity({_SIZE}) || quantity({_SIZE}).compareTo(quantity('{SIZE_MIN}')) >= 0",
            "messageExpression": (
                f"'spec.storage.volumes size is ' + {_SIZE} + ({_SIZE}.matches('^[0-9]+$') ? ' (bytes)' : '')"
                f" + '; allowed: {SIZE_MIN} or more, such as 10Gi'"
            ),
        },
    ],
}

_TAKEN_PORTS: Final = [9091, 9404]
LISTENERS_OF_BROKERS: Final = ["http", "replication"]
"""The names, in pods and Services, of the brokers' ports that no listener declares."""

_LIST_RULES: Final[Mapping[type, list[JsonObject]]] = {
    Listener: [
        {
            "rule": "self.all(each, self.exists_one(other, other.port == each.port))",
            "messageExpression": (
                "'spec.listeners has the port %d twice; allowed: each port once'"
                ".format([self.filter(each, !self.exists_one(other, other.port == each.port))[0].port])"
            ),
        },
        {
            "rule": f"self.all(each, each.port >= {PORT_MIN} && !(each.port in {_TAKEN_PORTS}))",
            "messageExpression": (
                "'spec.listeners has the port %d; allowed: 1024 to 65535 without those of the brokers, 9091 and 9404'"
                f".format([self.filter(each, each.port < {PORT_MIN} || each.port in {_TAKEN_PORTS})[0].port])"
            ),
        },
        {
            "rule": f"self.all(each, !(each.name in {LISTENERS_OF_BROKERS}))",
            "message": (  # The text is fixed, because a messageExpression with the name would exceed CEL's cost limit.
                f"spec.listeners has the name {' or '.join(LISTENERS_OF_BROKERS)}, which is reserved for the brokers;"
                " choose another name"
            ),
        },
    ],
}

CLUSTER: Final = Kind(
    resource=Cluster,
    status=ClusterStatus,
    plural="clusters",
    short_name="bc",
    writer="admin",
    rights="clusters",
    thing="cluster",
    columns=(
        column("Desired", "integer", ".spec.brokers.replicas"),
        column("Brokers", "integer", ".status.readyBrokers"),
        column("Topics", "integer", ".status.topics"),
        column("Controller", "integer", ".status.controller", wide=True),
        column("Under-replicated", "integer", ".status.underReplicatedPartitions", wide=True),
        column("Offline", "integer", ".status.offlinePartitions", wide=True),
    ),
    rules={**_RULES, **RUN_RULES},
    list_rules=_LIST_RULES,
    list_keys={Volume: "id", Listener: "name", BrokerServiceTemplate: "brokerId", MaintenanceEntry: "name", **RUN_KEYS},
    scaled=Scaled(("brokers", "replicas"), ("brokers",)),
    # The CRD has no defaults for these types, because the webhook must see whether spec.storage is left out, and the
    # default listener depends on spec.insecure.
    not_filled_in=frozenset({Storage, Listener}),
    is_in_files=True,
)


KINDS: Final[Mapping[str, Kind]] = {
    CLUSTER.name: CLUSTER,
    TOPIC.name: TOPIC,
    USER.name: USER,
    CONSUMER_GROUP.name: CONSUMER_GROUP,
    MAINTENANCE_JOB.name: MAINTENANCE_JOB,
}
"""The kinds by the field `kind`. Do not copy the mapping at import, because tests add kinds."""


def kind_of_plural(plural: str) -> Kind:
    """Return the kind with this plural name. Raises LookupError if there is none."""
    for kind in KINDS.values():
        if kind.plural == plural:
            return kind
    raise LookupError(f"no kind has the plural {plural}; allowed: {', '.join(each.plural for each in KINDS.values())}")


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
