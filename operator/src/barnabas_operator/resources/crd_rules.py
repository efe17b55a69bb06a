"""What the schema of a resource cannot say: its names, columns, and the rules between fields (CEL).

A rule with `oldSelf` holds for changes only. Each says the field, the value and what is allowed.
"""

from typing import Any, Final

from barnabas_core.topic_name import INTERNAL_TOPICS
from barnabas_operator.resources.cluster import Cluster, Listener, Resources, Storage, Volume
from barnabas_operator.resources.object_meta import Condition
from barnabas_operator.resources.quantity import ALLOWED
from barnabas_operator.resources.template import BrokerServiceTemplate
from barnabas_operator.resources.topic import Topic, TopicSpec

Json = dict[str, Any]
NAME_MAX: Final = 40
PORT_MIN: Final = 1024
"""Below it a port is only for root, and brokers run as nobody special."""
MEMORY_MIN: Final = "128Mi"
SIZE_MIN: Final = "1Gi"

NAMES: Final[dict[Any, Json]] = {
    Cluster: {
        "kind": "Cluster",
        "listKind": "ClusterList",
        "plural": "clusters",
        "singular": "cluster",
        "shortNames": ["bc"],
        "categories": ["barnabas"],
    },
    Topic: {
        "kind": "Topic",
        "listKind": "TopicList",
        "plural": "topics",
        "singular": "topic",
        "shortNames": ["bt"],
        "categories": ["barnabas"],
    },
}


def _column(name: str, kind: str, path: str, *, wide: bool = False) -> Json:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


_READY: Final = '.status.conditions[?(@.type=="Ready")]'
_AGE: Final = _column("Age", "date", ".metadata.creationTimestamp")

COLUMNS: Final[dict[Any, list[Json]]] = {
    Cluster: [
        _column("Ready", "string", f"{_READY}.status"),
        _column("Reason", "string", f"{_READY}.reason", wide=True),
        _column("Brokers", "integer", ".status.readyBrokers"),
        _column("Topics", "integer", ".status.topics"),
        _column("Controller", "integer", ".status.controller", wide=True),
        _column("Under-replicated", "integer", ".status.underReplicatedPartitions", wide=True),
        _column("Offline", "integer", ".status.offlinePartitions", wide=True),
        _AGE,
        _column("Message", "string", f"{_READY}.message"),
    ],
    Topic: [
        _column("Ready", "string", f"{_READY}.status"),
        _column("Reason", "string", f"{_READY}.reason", wide=True),
        _column("Cluster", "string", ".*.cluster"),  # Of spec, status or both, which are alike then.
        _column("Partitions", "integer", ".status.partitions"),
        _column("Replicas", "integer", ".status.replicas"),
        _column("Under-replicated", "integer", ".status.underReplicatedPartitions", wide=True),
        _column("Drifted", "string", '.status.conditions[?(@.type=="Drifted")].message', wide=True),
        _AGE,
        _column("Message", "string", f"{_READY}.message"),
    ],
}

SCALE: Final = {"specReplicasPath": ".spec.partitions", "statusReplicasPath": ".status.partitions"}

LIST_KEYS: Final[dict[Any, str]] = {
    Volume: "id",
    Listener: "name",
    Condition: "type",
    BrokerServiceTemplate: "brokerId",
}


NOT_FILLED_IN: Final = frozenset({Storage})
"""Left out, it stays so in what is stored: the webhook warns of disks that nobody asked for."""


def _fixed(field: str, inside: str = "spec") -> Json:
    """A field that never changes once the resource is there, nor comes or goes."""
    return {
        "rule": f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        "messageExpression": (
            f"'{inside}.{field} is ' + (has(self.{field}) ? self.{field} : 'missing') + '; allowed: '"
            f" + (has(oldSelf.{field}) ? oldSelf.{field} : 'leave it out') + ', it cannot change'"
        ),
    }


def _quantities(field: str) -> Json:
    """Amounts of resources, in words that its pattern would not have."""
    wrong = f"self.{field}.filter(name, !isQuantity(string(self.{field}[name])))[0]"
    return {
        "rule": f"!has(self.{field}) || self.{field}.all(name, isQuantity(string(self.{field}[name])))",
        "messageExpression": (
            f"'spec.brokers.resources.{field}.' + {wrong} + ' is ' + string(self.{field}[{wrong}])"
            f" + '; allowed: {ALLOWED}'"
        ),
    }


def _memory(field: str) -> Json:
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

RULES: Final[dict[Any, list[Json]]] = {
    Resources: [_quantities("requests"), _quantities("limits"), _memory("requests"), _memory("limits")],
    TopicSpec: [
        {
            "rule": "!has(oldSelf.partitions) || (has(self.partitions) && self.partitions >= oldSelf.partitions)",
            "messageExpression": (
                "'Decreasing partitions not supported: spec.partitions is %s; allowed: %d or more'"
                ".format([has(self.partitions) ? '%d'.format([self.partitions]) : 'missing', oldSelf.partitions])"
            ),
        },
        {
            "rule": f"!has(self.topicName) || !(self.topicName in {sorted(('.', '..', *INTERNAL_TOPICS))})",
            "messageExpression": (
                "'spec.topicName is ' + self.topicName"
                " + '; allowed: any name but . and .. and those of the brokers own topics'"
            ),
        },
        _fixed("topicName"),
    ],
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
        _fixed("storageClass", "spec.storage.volumes"),
    ],
}

_TAKEN_PORTS: Final = [9091, 9404]
LISTENERS_OF_BROKERS: Final = ["http", "replication"]
"""The names of these ports, in pods and Services."""

LIST_RULES: Final[dict[Any, list[Json]]] = {
    Volume: [
        {
            "rule": "oldSelf.all(was, self.exists(each, each.id == was.id))",
            "messageExpression": (
                "'Removing volumes is not supported: spec.storage.volumes lacks the id %d; allowed: all ids there were'"
                ".format([oldSelf.filter(was, !self.exists(each, each.id == was.id))[0].id])"
            ),
        }
    ],
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
            "message": (  # An expression of each name would cost more than the API server allows.
                f"spec.listeners has the name {' or '.join(LISTENERS_OF_BROKERS)}; allowed: any other,"
                " for these are the names of the brokers' own ports"
            ),
        },
    ],
}
"""Of lists, by what is in them."""

ROOT_RULES: Final[dict[Any, list[Json]]] = {
    Cluster: [
        {
            "rule": f"size(self.metadata.name) <= {NAME_MAX} && !self.metadata.name.contains('.')",
            "messageExpression": (
                f"'metadata.name is ' + self.metadata.name + '; allowed: at most {NAME_MAX} characters without a dot,"
                " for pods and their names in DNS are made of it'"
            ),
        }
    ],
    Topic: [
        {
            "rule": "has(self.spec.topicName) || size(self.metadata.name) <= 249",
            "message": "metadata.name has more than 249 characters; allowed: 249, as many as a topic's name may have",
        },
        {  # As long as no Cluster has the topic, a wrong name can be put right. Left out, it may be said later.
            "rule": (
                "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
            ),
            "messageExpression": (
                "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                " + '; allowed: ' + self.status.cluster + ', which has the topic'"
                " + (has(oldSelf.spec.cluster) ? '' : ', or leave it out')"
            ),
        },
    ],
}
