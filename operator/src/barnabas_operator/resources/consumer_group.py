"""The kind `ConsumerGroup`, which declares and reports the offsets, lag and scaling of a consumer group."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import OFFSETS_RESET, Kind, Resource, Status, column, fixed
from barnabas_operator.resources.topic import ConfigValue

GROUP_ID_LENGTH_MAX: Final = 255
RESET_TOPICS_MAX: Final = 100
RESET_OFFSETS_MAX: Final = 1_000
SHOWN_MAX: Final = 20
"""The maximum number of topics, and of members, that a status lists, so that the status stays small."""
SHOWN_PLAN_MAX: Final = 50
"""The maximum number of partitions of a reset that a status lists."""
OFFSET_MAX: Final = 2**53 - 1
"""The largest allowed integer, because JSON parsers that use doubles round larger integers."""
REPLICAS_MAX: Final = 10_000
SCALED_DOWN: Final = "ScaledDown"
"""The reason of the condition OffsetsReset while the target is scaled to 0 for a reset."""

GroupType = Literal["consumer", "share"]
GroupDeletionPolicy = Literal["Retain", "DeleteGroup", "DeleteOffsets", "Protect"]
WhenActive = Literal["Refuse", "Wait", "ScaleDown"]
Evaluated = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]
_DURATION_WORDS: Final = "a duration such as 90s, 2m, 1h30m, 7d, or PT1H30M as in Kafka's own tools"
Duration = Annotated[
    str,
    Meta(
        pattern=r"^(([0-9]+[dhms])+|P([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?)$",
        max_length=40,
        description=_DURATION_WORDS,
        extra={"allowed": _DURATION_WORDS},
    ),
]
_DATE_TIME_WORDS: Final = (
    "a time such as 2026-11-01T00:00:00Z or 2026-11-01T01:00:00+01:00; a time without a zone is in UTC"
)
DateTime = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?$",
        max_length=40,
        description=_DATE_TIME_WORDS,
        extra={"allowed": _DATE_TIME_WORDS},
    ),
]
ResetId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        description="1 to 63 letters, digits, '.', '_' and '-'; each new reset of a group needs a new id",
    ),
]
TopicNameText = Annotated[str, Meta(min_length=1, max_length=249)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """An empty mapping, written as {}."""


class PartitionOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An offset at which the group continues in one partition."""

    topic: Annotated[TopicNameText, Meta(description="the topic's name in Kafka")]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1, description="its number")]
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="the offset of the next record to be read")]


class ResetTo(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The position at which the group continues; exactly one field must be given."""

    earliest: Annotated[Nothing, Meta(description="continue at the oldest record of each partition")] | None = None
    latest: Annotated[Nothing, Meta(description="continue after the newest record of each partition")] | None = None
    datetime: Annotated[DateTime, Meta(description="continue at the first record of this time or later")] | None = None
    by_duration: (
        Annotated[Duration, Meta(description="continue at the first record that is younger than this duration")] | None
    ) = None
    shift_by: (
        Annotated[
            int,
            Meta(
                ge=-OFFSET_MAX,
                le=OFFSET_MAX,
                description="move the committed offsets by this number, backwards if it is negative",
            ),
        ]
        | None
    ) = None
    offsets: Annotated[
        tuple[PartitionOffset, ...], Meta(max_length=RESET_OFFSETS_MAX, description="continue at these offsets")
    ] = ()
    group: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=GROUP_ID_LENGTH_MAX,
                description="continue at the committed offsets of the group with this id",
            ),
        ]
        | None
    ) = None


class Reset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A reset of the group's offsets, which is carried out once for each id, while the group has no members."""

    id: ResetId
    to: Annotated[ResetTo, Meta(description="the position at which the group continues to read")]
    topics: Annotated[
        tuple[TopicNameText, ...],
        Meta(
            max_length=RESET_TOPICS_MAX,
            description="the topics to reset; if left out, all topics with committed offsets, and the topics in `to`",
        ),
    ] = ()
    dry_run: Annotated[bool, Meta(description="if true, the status shows the new offsets, but none is set")] = False
    when_active: Annotated[
        WhenActive,
        Meta(
            description="what happens while the group has members: Refuse does nothing, Wait waits until all"
            " members have left, ScaleDown scales spec.scaling.target to 0 for the reset"
        ),
    ] = "Refuse"


class Offsets(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The changes to the group's committed offsets."""

    reset: Annotated[Reset, Meta(description="a reset of the committed offsets")] | None = None


class LagObjective(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The limits for the lag. If the lag exceeds one of the limits, the condition WithinObjective becomes False."""

    max_records: (
        Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="the highest allowed number of unread records")] | None
    ) = None
    max_seconds: (
        Annotated[
            int,
            Meta(ge=0, le=OFFSET_MAX, description="the highest allowed age of the oldest unread record, in seconds"),
        ]
        | None
    ) = None
    max_retention_percent: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=100,
                description=(
                    "the highest allowed unread share of a partition's log, in percent; at 100 percent, retention"
                    " deletes unread records"
                ),
            ),
        ]
        | None
    ) = None
    for_: Annotated[
        Duration, Meta(description="how long a limit may be exceeded before WithinObjective becomes False, such as 90s")
    ] = field(default="2m", name="for")


class ScaleTarget(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The workload that runs the group's consumers, in the namespace of the resource."""

    kind: Annotated[Literal["Deployment", "StatefulSet"], Meta(description="the kind of the workload")] = "Deployment"
    name: Annotated[str, Meta(min_length=1, max_length=253, description="its name")]


class Scaling(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The scaling of the group's consumers by lag, to at most one replica a partition, except in a share group."""

    target: Annotated[ScaleTarget, Meta(description="the workload that is scaled")]
    lag_threshold: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=OFFSET_MAX,
                description="the target lag per replica in records, so that the replicas are the lag divided by this"
                " number; if left out, the lag does not change the number of replicas",
            ),
        ]
        | None
    ) = None
    min: Annotated[
        int, Meta(ge=0, le=REPLICAS_MAX, description=("the minimum number of replicas, also while there is no lag"))
    ] = 1
    max: Annotated[int, Meta(ge=1, le=REPLICAS_MAX, description="the maximum number of replicas of the target")] = 10


class ConsumerGroupSpec(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The desired state of a consumer group."""

    cluster: Annotated[
        str | None, Meta(description="the name of the Cluster; may be left out if the namespace has only one Cluster")
    ] = None
    group_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=GROUP_ID_LENGTH_MAX,
                description="the group id in Kafka, which cannot change; if left out, metadata.name",
            ),
        ]
        | None
    ) = None
    type: (
        Annotated[
            GroupType,
            Meta(
                description="the type of the group, which is checked: share for a share group, consumer for a group of"
                " the classic or the consumer protocol; if left out, the type is not checked, and a reset makes a"
                " consumer group if there is no group"
            ),
        ]
        | None
    ) = None
    config: (
        Annotated[
            dict[str, ConfigValue],
            Meta(
                description="Kafka's group configs, such as share.auto.offset.reset; a missing key gets its default,"
                " and a null leaves a key unchanged; if left out, the configs are not changed"
            ),
        ]
        | None
    ) = None
    offsets: Annotated[Offsets, Meta(description="changes to the group's committed offsets")] = Offsets()
    lag_objective: Annotated[LagObjective, Meta(description="the highest acceptable lag")] | None = None
    scaling: Annotated[Scaling, Meta(description="the scaling of the workload that runs the consumers")] | None = None
    deletion_policy: Annotated[
        GroupDeletionPolicy,
        Meta(
            description="what happens when this resource is deleted: Retain keeps the group; once the group has no"
            " members, DeleteGroup deletes the group, DeleteOffsets only the offsets; Protect blocks the deletion"
        ),
    ] = "Retain"
    adopt: Annotated[bool, Meta(description="if true, this resource may take over a group that already exists")] = True
    pause: Annotated[bool, Meta(description="if true, the operator neither changes nor deletes the group")] = False


class GroupTopic(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The lag of the group in one topic, with rounded numbers."""

    topic: Annotated[str, Meta(description="the topic's name in Kafka")]
    partitions: Annotated[int, Meta(description="the number of partitions with committed offsets")]
    lag: Annotated[int, Meta(description="the number of unread records")]
    seconds: Annotated[int, Meta(description="the seconds since the oldest unread record was written")] | None = None
    evaluation: Annotated[Evaluated, Meta(description="the worst status of a partition, by Burrow's rules")]


class GroupMember(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A consumer of the group."""

    client_id: Annotated[str, Meta(description="the client.id of the consumer")]
    host: Annotated[str, Meta(description="its host")]
    partitions: Annotated[int, Meta(description="the number of assigned partitions")]


class PlannedOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The change that a reset makes in one partition."""

    topic: Annotated[str, Meta(description="the topic's name in Kafka")]
    partition: Annotated[int, Meta(description="its number")]
    from_: Annotated[int, Meta(description="the committed offset; left out if there is none")] | None = field(
        default=None, name="from"
    )
    to: Annotated[int, Meta(description="the offset after the reset")]


class ResetStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The result of the reset, or of its dry run."""

    id: Annotated[str, Meta(description="spec.offsets.reset.id")]
    group_epoch: (
        Annotated[
            int,
            Meta(description="the epoch of a share group before its reset, which raises it by 1; left out afterwards"),
        ]
        | None
    ) = None
    done_at: Annotated[str, Meta(description="when the offsets were committed; left out until then")] | None = None
    partitions: Annotated[int, Meta(description="the number of partitions whose offset the reset changes")] = 0
    skipped: Annotated[int, Meta(description="the number of records that the group skips")] = 0
    again: Annotated[int, Meta(description="the number of records that the group reads again")] = 0
    plan: Annotated[
        tuple[PlannedOffset, ...],
        Meta(max_length=SHOWN_PLAN_MAX, description=f"the changed offsets of the first {SHOWN_PLAN_MAX} partitions"),
    ] = ()


class ConsumerGroupStatus(
    Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The state of the group at the last reconciliation. Numbers are rounded, and updated at most once a minute."""

    cluster: Annotated[
        str | None, Meta(description="the Cluster of the group; spec.cluster can no longer change to another Cluster")
    ] = None
    group_id: Annotated[str, Meta(description="the group id in Kafka")] | None = None
    state: Annotated[str, Meta(description="the state in Kafka, such as Stable, Empty or Dead")] | None = None
    type: Annotated[str, Meta(description="the protocol of the group: classic, consumer or share")] | None = None
    members: Annotated[int, Meta(description="the number of consumers in the group")] | None = None
    lag: Annotated[int, Meta(description="the number of unread records in all partitions")] | None = None
    held_back: (
        Annotated[
            int,
            Meta(
                description="the part of the lag that read_committed consumers cannot read yet, because of open"
                " transactions; left out if it is 0"
            ),
        ]
        | None
    ) = None
    seconds: Annotated[int, Meta(description="the seconds since the oldest unread record was written")] | None = None
    evaluation: Annotated[Evaluated, Meta(description="the worst status of a partition, as in Burrow")] | None = None
    replicas: Annotated[int, Meta(description="the number of replicas that the operator last set")] | None = None
    reset: Annotated[ResetStatus, Meta(description="the result of the reset in the spec")] | None = None
    topics: Annotated[
        tuple[GroupTopic, ...],
        Meta(max_length=SHOWN_MAX, description=f"the {SHOWN_MAX} topics with the highest lag"),
    ] = ()
    topic_count: Annotated[int, Meta(description="the number of topics with committed offsets")] | None = None
    consumers: Annotated[
        tuple[GroupMember, ...], Meta(max_length=SHOWN_MAX, description=f"the first {SHOWN_MAX} members")
    ] = ()


class ConsumerGroup(Resource, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A consumer group of a Cluster."""

    kind: Literal["ConsumerGroup"] = "ConsumerGroup"
    spec: ConsumerGroupSpec
    status: ConsumerGroupStatus | None = None

    @property
    def group_id(self) -> str:
        """The group id in Kafka."""
        return self.spec.group_id or self.metadata.name


_TARGETS: Final = ("earliest", "latest", "datetime", "byDuration", "shiftBy", "group")
_OFFSETS_CHOSEN: Final = "(has(self.offsets) && size(self.offsets) > 0 ? 1 : 0)"
_CHOSEN: Final = " + ".join([*(f"(has(self.{each}) ? 1 : 0)" for each in _TARGETS), _OFFSETS_CHOSEN])

CONSUMER_GROUP: Final = Kind(
    resource=ConsumerGroup,
    status=ConsumerGroupStatus,
    plural="consumergroups",
    short_name="bg",
    writer="edit",
    rights="groups",
    thing="group",
    columns=(
        column("Group", "string", ".status.groupId"),
        column("State", "string", ".status.state"),
        column("Members", "integer", ".status.members"),
        column("Lag", "integer", ".status.lag"),
        column("Seconds", "integer", ".status.seconds"),
        column("Evaluation", "string", ".status.evaluation"),
        column("Objective", "string", '.status.conditions[?(@.type=="WithinObjective")].status'),
        column("Type", "string", ".status.type", wide=True),
        column("DeadLetters", "string", r".spec.config.errors\.deadletterqueue\.topic\.name", wide=True),
        column("HeldBack", "integer", ".status.heldBack", wide=True),
        column("Cluster", "string", ".*.cluster", wide=True),  # Both spec and status may have this field.
        column("Reset", "string", '.status.conditions[?(@.type=="OffsetsReset")].message', wide=True),
    ),
    rules={
        ConsumerGroup: [
            {  # `spec.cluster` can be changed until `status.cluster` is set.
                "rule": (
                    "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                    " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
                ),
                "messageExpression": (
                    "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                    " + '; allowed: ' + self.status.cluster + ' (a ConsumerGroup cannot move to another Cluster)'"
                    " + (has(oldSelf.spec.cluster) ? '' : ', or no value')"
                ),
            },
            {  # If the target changed while a reset keeps it at 0, nothing would scale the old target up again.
                "rule": (
                    "!has(self.status) || !has(self.status.conditions) || !has(oldSelf.spec.scaling)"
                    f" || !self.status.conditions.exists(each, each.type == '{OFFSETS_RESET}' && each.reason =="
                    f" '{SCALED_DOWN}') || (has(self.spec.scaling)"
                    " && self.spec.scaling.target == oldSelf.spec.scaling.target)"
                ),
                "message": (
                    "spec.scaling.target cannot change while the workload is scaled down for a reset; wait until the"
                    " reset has ended, or remove spec.offsets.reset and wait until the workload is scaled up again"
                ),
            },
        ],
        ConsumerGroupSpec: [
            fixed("groupId"),
            {
                "rule": (
                    "!has(self.offsets) || !has(self.offsets.reset) || self.offsets.reset.whenActive != 'ScaleDown'"
                    " || has(self.scaling)"
                ),
                "message": (
                    "spec.offsets.reset.whenActive is ScaleDown, but spec.scaling is missing; set"
                    " spec.scaling.target, or set whenActive to Refuse or Wait"
                ),
            },
        ],
        ResetTo: [
            {
                "rule": f"{_CHOSEN} == 1",
                "message": (
                    f"spec.offsets.reset.to needs exactly one of {', '.join(_TARGETS)} or offsets;"
                    " write earliest and latest with the value {}"
                ),
            }
        ],
        Scaling: [
            {
                "rule": "self.min <= self.max",
                "messageExpression": (
                    "'spec.scaling.min is %d; allowed: at most spec.scaling.max, %d'.format([self.min, self.max])"
                ),
            }
        ],
    },
    name_field="groupId",
    status_is_news=False,
    is_in_files=True,
)
