"""The `Topic` resource: names and defaults as Strimzi's KafkaTopic has them, where they fit."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from barnabas_core.topic_name import NAME_LENGTH_MAX
from barnabas_operator.resources.object_meta import API_VERSION, ApiVersion, Conditions, ObjectMeta, ObservedGeneration

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
        description=f"the topic's name in Kafka, where it is not metadata.name; never changes; 1 to {NAME_LENGTH_MAX}"
        " letters, digits, '.', '_' and '-'",
    ),
]


class TopicSpec(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a topic shall be. A number left out is the cluster's default when the topic is made, then left alone."""

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
                description="increase only; left out, num.partitions of the Cluster when made",
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
                description="of each partition; left out, default.replication.factor of the Cluster when made",
            ),
        ]
        | None
    ) = None
    config: Annotated[
        dict[str, ConfigValue],
        Meta(description="Kafka's topic configs; what is not named is the default, a null leaves the key alone"),
    ] = {}
    deletion_policy: Annotated[
        DeletionPolicy,
        Meta(description="when this resource is deleted, Retain keeps the topic, Delete does not; Protect keeps both"),
    ] = "Retain"
    adopt: Annotated[
        bool, Meta(description="true: takes over a topic that was there before this resource; false: refuses it")
    ] = True
    drift_policy: Annotated[
        DriftPolicy,
        Meta(description="what is done about changes by others: Revert undoes them, Warn tells of them"),
    ] = "Revert"
    pause: Annotated[bool, Meta(description="true: the topic is left as it is, deletion included")] = False


class TopicStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What the topic was found to be at the last reconciliation."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration | None = None
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
        Annotated[int, Meta(description="how many partitions lack replicas in sync")] | None
    ) = None
    offline_partitions: Annotated[int, Meta(description="how many partitions nobody leads")] | None = None


class Topic(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A topic of a Cluster."""

    api_version: ApiVersion = API_VERSION
    kind: Literal["Topic"] = "Topic"
    metadata: ObjectMeta
    spec: TopicSpec
    status: TopicStatus | None = None

    @property
    def topic_name(self) -> str:
        """The topic's name in Kafka."""
        return self.spec.topic_name or self.metadata.name
