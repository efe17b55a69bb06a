"""Manifests that a user may get wrong, who refuses each, and what the message must name: field, value, what is allowed.

They are applied to a Kubernetes where the Cluster `demo` has three brokers, its topic `flights` 12 partitions and
three replicas, and where another Topic, `owner`, has the topic `taken`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from barnabas_operator.resources.kind import JsonObject

By = Literal["schema", "rule", "webhook", "dry run"]
"""The part that refuses.

The API server refuses by a resource's schema or its rules (CEL). The operator's webhook refuses where more knowledge
is needed, or after a dry run of the brokers' pods.
"""

BROKERS: Final = 3
LIVE_PARTITIONS: Final = 12


class Bad(NamedTuple):
    """A bad manifest.

    `before` was applied first, if only the change is wrong, and `status` is the status that it got.
    """

    kind: str
    by: By
    spec: Any
    says: tuple[str, ...]
    before: JsonObject | None = None
    name: str = "flights"
    status: JsonObject | None = None

    def manifest(self, spec: Any) -> JsonObject:
        """Return the manifest as `kubectl apply` reads it."""
        return {
            "apiVersion": "barnabas.dev/v1alpha1",
            "kind": self.kind,
            "metadata": {"name": self.name},
            "spec": spec,
        }


def topic(
    by: By, *says: str, before: JsonObject | None = None, name: str = "", status: JsonObject | None = None, **spec: Any
) -> Bad:
    """Return a Topic with this spec.

    A change is one of a Topic whose topic does not exist yet, unless a status is given.
    """
    return Bad("Topic", by, spec, says, before, name or ("flights" if before is None else "changing"), status)


def cluster(by: By, *says: str, before: JsonObject | None = None, name: str = "other", **spec: Any) -> Bad:
    """Return an open Cluster with this spec."""
    return Bad("Cluster", by, {"insecure": True, **spec}, says, before, name)


def pods(*says: str, **brokers: Any) -> Bad:
    """Return a Cluster whose pods Kubernetes would refuse."""
    return cluster("dry run", *says, brokers=brokers)


def in_template(by: By, *says: str, **entries: Any) -> Bad:
    """Return a Cluster with these templates."""
    return cluster(by, *says, template=entries)


def config(by: By, *says: str, **settings: Any) -> Bad:
    """Return a Topic with these configs; `_` stands for a dot."""
    return topic(by, *says, config={name.replace("_", "."): value for name, value in settings.items()})


def volumes(*sizes: str) -> JsonObject:
    """Return disks of these sizes."""
    return {"volumes": [{"id": number, "size": size} for number, size in enumerate(sizes)]}


TOPICS: Final[Mapping[str, Bad]] = {
    "no partitions": topic("schema", "spec.partitions", "0", "1", partitions=0),
    "more partitions than a request may make": topic("schema", "spec.partitions", "10001", "10000", partitions=10_001),
    "partitions in words": topic("schema", "spec.partitions", "string", "integer", partitions="six"),
    "no replicas": topic("schema", "spec.replicas", "0", "1", replicas=0),
    "a field that is none": topic("schema", "partitons", partitons=6),
    "a policy that is none": topic(
        "schema", "spec.deletionPolicy", "Keep", "Delete", "Protect", "Retain", deletionPolicy="Keep"
    ),
    "a topic that was there and may not be adopted": topic(
        "webhook", "flights", "spec.adopt is false", "set spec.adopt to true", adopt=False
    ),
    "configs as a list": topic("schema", "spec.config", config=["retention.ms=5"]),
    "no spec": Bad("Topic", "schema", None, ("spec",)),
    "fewer partitions than declared before": topic(
        "rule", "spec.partitions", "4", "6 or more", before={"partitions": 6}, partitions=4
    ),
    "partitions that are left out later": topic(
        "rule", "spec.partitions", "missing", "6 or more", before={"partitions": 6}
    ),
    "another topic": topic("rule", "spec.topicName", "b", "allowed: a", before={"topicName": "a"}, topicName="b"),
    "a topic's name that goes": topic("rule", "spec.topicName", "missing", "allowed: a", before={"topicName": "a"}),
    "a topic's name that comes": topic("rule", "spec.topicName", "is b", "allowed: no value", before={}, topicName="b"),
    "another cluster": topic(
        "rule",
        "spec.cluster",
        "is c2",
        "allowed: demo (a Topic cannot move to another Cluster)",
        before={"cluster": "demo"},
        status={"cluster": "demo", "topicName": "changing"},
        cluster="c2",
    ),
    "a name that topics cannot have": topic("schema", "spec.topicName", "flug hafen", topicName="flug hafen"),
    "a topic called dot": topic("rule", "spec.topicName", "..", topicName=".."),
    "a name that is too long": topic("schema", "spec.topicName", "xxx", "249", topicName="x" * 250),
    "a topic of the brokers": topic("rule", "spec.topicName", "__consumer_offsets", topicName="__consumer_offsets"),
    "fewer partitions than the topic has": topic("webhook", "spec.partitions", "6", "12 or more", partitions=6),
    "more replicas than brokers": topic("webhook", "spec.replicas", "4", "1 to 3", replicas=4, name="new"),
    "a topic that another resource has": topic("webhook", "taken", "owner", topicName="taken", name="one"),
    "a name that metrics cannot tell from another Topic's": topic(
        "webhook", "topic a_b", "Topic dotted", "'.' and '_'", "choose another name", topicName="a_b", name="a-b"
    ),
    "a cleanup policy as a list": config(
        "webhook", "cleanup.policy", "is a list", 'write "compact,delete"', cleanup_policy=["compact", "delete"]
    ),
    "a retention in days": config(
        "webhook", "retention.ms=7d", "must be an integer", "write 7d as 604800000", retention_ms="7d"
    ),
    "a compression that is none": config("webhook", "compression.type", "rar", "gzip", compression_type="rar"),
    "a flag that is neither": config("webhook", "preallocate", "perhaps", preallocate="perhaps"),
    "more in sync than replicas": topic(
        "webhook", "min.insync.replicas", "3", "1 to 2", replicas=2, config={"min.insync.replicas": 3}, name="new"
    ),
}

CLUSTERS: Final[Mapping[str, Bad]] = {
    "no brokers": cluster("schema", "spec.brokers.replicas", "0", "1", brokers={"replicas": 0}),
    "no disks": cluster("schema", "spec.storage.volumes", "0", "1", storage={"volumes": []}),
    "a disk without an id": cluster("schema", "id", storage={"volumes": [{"size": "1Gi"}]}),
    "a disk of no size": cluster("rule", "size", "plenty", "10Gi", storage=volumes("plenty")),
    "the same disk twice": cluster("schema", "id", "0", storage={"volumes": [{"id": 0}, {"id": 0}]}),
    "a listener's name in capitals": cluster("schema", "name", "PLAIN", listeners=[{"name": "PLAIN"}]),
    "the same listener twice": cluster(
        "schema", "plain", listeners=[{"name": "plain"}, {"name": "plain", "port": 9093}]
    ),
    "a listener of no type": cluster(
        "schema", "type", "ingress", "nodeport", listeners=[{"name": "plain", "type": "ingress"}]
    ),
    "an address that nodes do not have": cluster(
        "schema",
        "preferredNodePortAddressType",
        "Public",
        "InternalIP",
        listeners=[{"name": "plain", "type": "nodeport", "preferredNodePortAddressType": "Public"}],
    ),
    "memory in words": cluster(
        "rule", "memory", "much", "512Mi", brokers={"resources": {"limits": {"memory": "much"}}}
    ),
    "a request above its limit": cluster(
        "webhook",
        "spec.brokers.resources.requests.memory",
        "2Gi",
        "at most 1Gi",
        brokers={"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}},
    ),
    "a disk without a unit": cluster(
        "rule", "size is 10 (bytes)", "1Gi or more", "10Gi", storage={"volumes": [{"id": 0, "size": 10}]}
    ),
    "a disk in bytes": cluster(
        "rule", "size", "10GB", "such as 500m, 2, 512Mi or 10Gi; write 10Gi", storage=volumes("10GB")
    ),
    "memory without a unit": cluster(
        "rule",
        "spec.brokers.resources.limits.memory is 512 (bytes); allowed: 128Mi or more",
        brokers={"resources": {"requests": {}, "limits": {"memory": 512}}},
    ),
    "too little memory": cluster(
        "rule",
        "spec.brokers.resources.requests.memory is 64Mi; allowed: 128Mi or more",
        brokers={"resources": {"requests": {"memory": "64Mi"}}},
    ),
    "a port of root": cluster("rule", "port", "80", "1024 to 65535", listeners=[{"name": "a", "port": 80}]),
    "a resource that is none": pods("spec.brokers.resources", "disk", resources={"limits": {"disk": "1Gi"}}),
    "a toleration's operator that is none": in_template(
        "dry run",
        "spec.template.pod.spec.tolerations[0].operator",
        "Maybe",
        "Exists",
        pod={"spec": {"tolerations": [{"key": "a", "operator": "Maybe"}]}},
    ),
    "affinity in words": in_template(
        "dry run", "Affinity", "string", pod={"spec": {"affinity": {"nodeAffinity": "near"}}}
    ),
    "a node's label that nobody has": in_template(
        "dry run", "spec.template.pod.spec.nodeSelector", "a b", pod={"spec": {"nodeSelector": {"x": "a b"}}}
    ),
    "a variable without a name": in_template(
        "webhook",
        "spec.template.brokerContainer.env[0].name is missing",
        "allowed: a value that identifies the list entry",
        brokerContainer={"env": [{"value": "x"}]},
    ),
    "brokers by the StatefulSet": in_template(
        "webhook",
        "spec.template.statefulSet.spec.replicas is 5",
        "remove the field",
        statefulSet={"spec": {"replicas": 5}},
    ),
    "a label that finds the brokers": in_template(
        "webhook",
        "spec.template.pod.metadata.labels[\"app.kubernetes.io/name\"] is 'mine'",
        "choose another name",
        pod={"metadata": {"labels": {"app.kubernetes.io/name": "mine"}}},
    ),
    "a budget's field that is none": in_template(
        "dry run",
        "PodDisruptionBudget other-broker: spec.maxUnavailabel: field not declared",
        podDisruptionBudget={"spec": {"maxUnavailabel": 1}},
    ),
    "an object that nobody makes": in_template("schema", "spec.template", "deployment", deployment={}),
    "racks by a label that is none": cluster(
        "schema", "spec.brokers.rack.topologyKey", "a b", brokers={"rack": {"topologyKey": "a b"}}
    ),
    "a priority that cannot be": in_template(
        "dry run",
        "spec.template.pod.spec.priorityClassName",
        "Very High",
        pod={"spec": {"priorityClassName": "Very High"}},
    ),
    "a name that is too long for pods": cluster("rule", "metadata.name", "40", name="c" * 41),
    "a name with a dot": cluster("rule", "metadata.name", "a.b", "dot", name="a.b"),
    "a name that no Service can have": cluster("rule", "metadata.name", "3brokers", "letter", name="3brokers"),
    "the same port twice": cluster(
        "rule", "spec.listeners", "port", "9092", "once", listeners=[{"name": "a"}, {"name": "b"}]
    ),
    "the brokers' own port": cluster(
        "rule", "spec.listeners", "port", "9091", "65535", listeners=[{"name": "a", "port": 9091}]
    ),
    "any free port": cluster("rule", "spec.listeners", "port", "0", "65535", listeners=[{"name": "a", "port": 0}]),
    "a class of disks that is not there": cluster(
        "dry run",
        "spec.storage.volumes[0].storageClass is nobodys",
        "no such StorageClass; allowed: ",
        storage={"volumes": [{"id": 0, "storageClass": "nobodys"}]},
    ),
    "a level of the metadata that is none": cluster("schema", "spec.metadataVersion", "1", metadataVersion=0),
    "a listener of the brokers": cluster(
        "rule",
        "spec.listeners",
        "name",
        "replication",
        listeners=[{"name": "replication", "port": 9095}],
    ),
    "a setting that the operator makes": cluster(
        "webhook", "must not set node.id", "spec.brokers", config={"node.id": 7}
    ),
    "a broker's setting out of range": cluster("webhook", "num.partitions", "0", "1", config={"num.partitions": 0}),
    "a topic's setting for brokers": cluster(
        "webhook", "spec.config retention.ms=5", "did you mean log.retention.ms?", config={"retention.ms": 5}
    ),
}

OTHERS: Final[Mapping[str, Bad]] = {
    "an ACL for a range of addresses": Bad(
        "User",
        "rule",
        {
            "authentication": {"type": "external"},
            "authorization": {
                "acls": [{"resource": {"type": "cluster"}, "host": "10.0.0.0/8", "operations": ["Describe"]}]
            },
        },
        ("spec.authorization.acls[0].host", "IP address"),
    ),
    "an objective for a duration in words": Bad(
        "ConsumerGroup", "rule", {"lagObjective": {"maxRecords": 1, "for": "soon"}}, ("spec.lagObjective.for", "90s")
    ),
    "a reset to a time in words": Bad(
        "ConsumerGroup",
        "rule",
        {"offsets": {"reset": {"id": "one", "to": {"datetime": "yesterday"}, "topics": ["flights"]}}},
        ("spec.offsets.reset.to.datetime", "2026-11-01T00:00:00Z"),
    ),
}

BAD: Final = {
    f"{prefix}: {name}": bad
    for prefix, table in (("topic", TOPICS), ("cluster", CLUSTERS), ("other", OTHERS))
    for name, bad in table.items()
}


def refused_by(*by: By) -> list[str]:
    """Return the names of the manifests that these parts refuse."""
    return [name for name, bad in BAD.items() if bad.by in by]
