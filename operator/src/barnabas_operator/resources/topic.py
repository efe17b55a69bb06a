"""The kind `Topic`: names and defaults as Strimzi's KafkaTopic has them, where they fit."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_core.topic_name import INTERNAL_TOPICS, NAME_LENGTH_MAX, folded
from barnabas_operator.resources.kind import Kind, Scaled, column, fixed
from barnabas_operator.resources.resource import Resource, Status

# Kafka's controller refuses a request that makes more partitions than this (ReplicationControlManager).
PARTITIONS_MAX: Final = 10_000
REPLICAS_MAX: Final = 32_767

ConfigValue = str | int | float | bool | None
DeletionPolicy = Literal["Retain", "Delete", "Protect"]
DriftPolicy = Literal["Revert", "Warn"]
TopicName = Annotated[
    str,
    Meta(
        pattern=rf"^[a-zA-Z0-9._-]{{1,{NAME_LENGTH_MAX}}}$",
        description=f"the topic's name in Kafka, if it is not metadata.name; never changes; 1 to {NAME_LENGTH_MAX}"
        " letters, digits, '.', '_' and '-'",
    ),
]


class TopicSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The desired state of a topic.

    A number left out is the cluster's default when the topic is made, then left alone.
    """

    cluster: Annotated[str | None, Meta(description="the Cluster's name; may be left out where there is only one")] = (
        None
    )
    topic_name: TopicName | None = None
    partitions: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=PARTITIONS_MAX,
                description=(
                    "the number of partitions, which can only be increased; left out, num.partitions "
                    "of the Cluster at the creation"
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
                    "the replicas of each partition; left out, default.replication.factor of "
                    "the Cluster at the creation"
                ),
            ),
        ]
        | None
    ) = None
    config: Annotated[
        dict[str, ConfigValue],
        Meta(description="Kafka's topic configs; a missing key has its default, a key that is null is not changed"),
    ] = {}
    deletion_policy: Annotated[
        DeletionPolicy,
        Meta(description="when this resource is deleted, Retain keeps the topic, Delete does not; Protect keeps both"),
    ] = "Retain"
    adopt: Annotated[
        bool, Meta(description="true: takes over a topic that existed before this resource; false: refuses to")
    ] = True
    drift_policy: Annotated[
        DriftPolicy,
        Meta(description="what happens to changes by other clients: Revert undoes them, Warn only reports them"),
    ] = "Revert"
    pause: Annotated[bool, Meta(description="true: the topic is left as it is, deletion included")] = False


class TopicStatus(Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of the topic at the last reconciliation."""

    cluster: Annotated[str | None, Meta(description="the Cluster that has the topic; never changes")] = None
    topic_name: Annotated[str, Meta(description="the topic's name in Kafka")] | None = None
    topic_id: (
        Annotated[
            str, Meta(description="the topic's id in Kafka; only a topic with this id is deleted with the resource")
        ]
        | None
    ) = None
    partitions: Annotated[int, Meta(description="how many partitions the topic has")] | None = None
    replicas: Annotated[int, Meta(description="how many replicas each partition has")] | None = None
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
        column("Cluster", "string", ".*.cluster"),  # From spec or status; if both have it, they agree.
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
                    "metadata.name has more than 249 characters; allowed: 249, as many as a topic's name may have"
                ),
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
            fixed("topicName"),
        ],
    },
    scaled=Scaled(("partitions",), ("partitions",)),
    name_field="topicName",
    folded=folded,
    is_in_files=True,
)
