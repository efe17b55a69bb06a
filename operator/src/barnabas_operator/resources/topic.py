"""The kind `Topic`, with the field names and defaults of Strimzi's KafkaTopic where possible."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_core.topic_partition import INTERNAL_TOPICS, NAME_LENGTH_MAX, folded
from barnabas_operator.resources.kind import Kind, Resource, Scaled, Status, column, fixed

# Kafka's controller refuses a request that creates more partitions (ReplicationControlManager).
PARTITIONS_MAX: Final = 10_000
REPLICAS_MAX: Final = 32_767

ConfigValue = str | int | float | bool | None
DeletionPolicy = Literal["Retain", "Delete", "Protect"]
DriftPolicy = Literal["Revert", "Warn"]
TopicName = Annotated[
    str,
    Meta(
        pattern=rf"^[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}$",
        description=f"1 to {NAME_LENGTH_MAX} letters, digits, '.', '_' and '-'; the topic's name in Kafka, which cannot"
        " change; if left out, metadata.name",
    ),
]


class TopicSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a topic."""

    cluster: Annotated[
        str | None, Meta(description="the name of the Cluster; may be left out if the namespace has only one Cluster")
    ] = None
    topic_name: TopicName | None = None
    partitions: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=PARTITIONS_MAX,
                description=(
                    "the number of partitions, which can only be increased; if left out, a new topic gets the "
                    "Cluster's num.partitions"
                ),
            ),
        ]
        | None
    ) = None
    replicas: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=REPLICAS_MAX,
                description=(
                    "the number of replicas of each partition; if left out, a new topic gets the Cluster's "
                    "default.replication.factor"
                ),
            ),
        ]
        | None
    ) = None
    config: Annotated[
        dict[str, ConfigValue],
        Meta(description="Kafka's topic configs; a missing key gets its default, and a null leaves a key unchanged"),
    ] = {}
    deletion_policy: Annotated[
        DeletionPolicy,
        Meta(
            description="what happens when this resource is deleted: Retain keeps the topic, Delete deletes the topic,"
            " Protect blocks the deletion"
        ),
    ] = "Retain"
    adopt: Annotated[bool, Meta(description="if true, this resource may take over a topic that already exists")] = True
    drift_policy: Annotated[
        DriftPolicy,
        Meta(description="what happens to changes by other clients: Revert undoes the changes, Warn only reports them"),
    ] = "Revert"
    pause: Annotated[
        bool, Meta(description="if true, the operator does not change the topic, even if this resource is deleted")
    ] = False


class TopicStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of the topic at the last reconciliation."""

    cluster: Annotated[
        str | None, Meta(description="the Cluster of the topic; spec.cluster can no longer change to another Cluster")
    ] = None
    topic_name: Annotated[str, Meta(description="the topic's name in Kafka")] | None = None
    topic_id: (
        Annotated[
            str,
            Meta(
                description="the topic id in Kafka; a later topic of the same name has another id, and is not"
                " deleted with this resource"
            ),
        ]
        | None
    ) = None
    partitions: Annotated[int, Meta(description="the number of partitions")] | None = None
    replicas: Annotated[int, Meta(description="the number of replicas of each partition")] | None = None
    under_replicated_partitions: (
        Annotated[int, Meta(description="how many partitions have replicas that are not in sync")] | None
    ) = None
    offline_partitions: Annotated[int, Meta(description="how many partitions have no leader")] | None = None


class Topic(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A topic of a Cluster."""

    kind: Literal["Topic"] = "Topic"
    spec: TopicSpec
    status: TopicStatus | None = None

    @property
    def topic_name(self) -> str:
        """The topic's name in Kafka."""
        return self.spec.topic_name or self.metadata.name


TOPIC: Final = Kind(
    resource=Topic,
    status=TopicStatus,
    plural="topics",
    short_name="bt",
    writer="edit",
    rights="topics",
    thing="topic",
    columns=(
        column("Cluster", "string", ".*.cluster"),  # Both spec and status may have this field.
        column("Partitions", "integer", ".status.partitions"),
        column("Replicas", "integer", ".status.replicas"),
        column("Under-replicated", "integer", ".status.underReplicatedPartitions", wide=True),
        column("Drifted", "string", '.status.conditions[?(@.type=="Drifted")].message', wide=True),
    ),
    rules={
        Topic: [
            {
                "rule": "has(self.spec.topicName) || size(self.metadata.name) <= 249",
                "message": (
                    "metadata.name has more than 249 characters; allowed: at most 249, the limit for topic names"
                ),
            },
            {  # `spec.cluster` can be changed until `status.cluster` is set.
                "rule": (
                    "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                    " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
                ),
                "messageExpression": (
                    "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                    " + '; allowed: ' + self.status.cluster + ' (a Topic cannot move to another Cluster)'"
                    " + (has(oldSelf.spec.cluster) ? '' : ', or no value')"
                ),
            },
        ],
        TopicSpec: [
            {
                "rule": "!has(oldSelf.partitions) || (has(self.partitions) && self.partitions >= oldSelf.partitions)",
                "messageExpression": (
                    "'Decreasing partitions is not supported: spec.partitions is %s; allowed: %d or more'"
                    ".format([has(self.partitions) ? '%d'.format([self.partitions]) : 'missing', oldSelf.partitions])"
                ),
            },
            {
                "rule": f"!has(self.topicName) || !(self.topicName in {sorted(('.', '..', *INTERNAL_TOPICS))})",
                "messageExpression": (
                    "'spec.topicName is ' + self.topicName"
                    " + '; allowed: any name but . and .. and the names of internal topics'"
                ),
            },
            fixed("topicName"),
        ],
    },
    scaled=Scaled(("partitions",), ("partitions",)),
    name_field="topicName",
    folded=folded,
    is_in_files=True,
)
