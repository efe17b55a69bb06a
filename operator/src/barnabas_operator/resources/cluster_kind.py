"""The kind `Cluster`: its names, columns of `kubectl get`, and CEL rules."""

from collections.abc import Mapping
from typing import Final

from barnabas_operator.resources.cluster import Cluster, ClusterStatus, Listener, Resources, Storage, Volume
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.kind import Kind, Scaled, column
from barnabas_operator.resources.maintenance_entry import MaintenanceEntry
from barnabas_operator.resources.maintenance_run import RUN_KEYS, RUN_RULES
from barnabas_operator.resources.quantity import ALLOWED
from barnabas_operator.resources.template import BrokerServiceTemplate

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
