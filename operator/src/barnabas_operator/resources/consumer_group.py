"""The kind `ConsumerGroup`: what a group's offsets, lag and consumers shall be, and what they are."""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from barnabas_operator.resources.kind import Kind, column, fixed
from barnabas_operator.resources.object_meta import OFFSETS_RESET
from barnabas_operator.resources.resource import Resource, Status

GROUP_ID_LENGTH_MAX: Final = 255
RESET_TOPICS_MAX: Final = 100
RESET_OFFSETS_MAX: Final = 1_000
SHOWN_MAX: Final = 20
"""Topics and members that a status lists: it stays small however large the group is."""
SHOWN_PLAN_MAX: Final = 50
"""Partitions of a reset that a status lists."""
OFFSET_MAX: Final = 2**53 - 1
"""The largest integer that JSON carries exactly; the API server takes a greater bound for a negative one."""
REPLICAS_MAX: Final = 10_000
SCALED_DOWN: Final = "ScaledDown"
"""The reason of OffsetsReset while the target is at 0 for a reset."""

GroupDeletionPolicy = Literal["Retain", "DeleteGroup", "DeleteOffsets", "Protect"]
WhenActive = Literal["Refuse", "Wait", "ScaleDown"]
Evaluated = Literal["OK", "WARN", "STOP", "STALL", "REWIND"]
Duration = Annotated[
    str,
    Meta(
        pattern=r"^(([0-9]+[dhms])+|P([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?)$",
        max_length=40,
        description="such as 90s, 2m, 1h30m, 7d, or PT1H30M as in Kafka's own tools",
    ),
]
DateTime = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:?[0-9]{2})?$",
        max_length=40,
        description="such as 2026-11-01T00:00:00Z or 2026-11-01T01:00:00+01:00; UTC if it names no zone",
    ),
]
ResetId = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        description="1 to 63 letters, digits, '.', '_' and '-'; each id is carried out once for a group, so a new reset"
        " needs a new id",
    ),
]
TopicNameText = Annotated[str, Meta(min_length=1, max_length=249)]


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """Needs no more said: write {}."""


class PartitionOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An offset at which the group goes on in one partition."""

    topic: Annotated[TopicNameText, Meta(description="the topic's name in Kafka")]
    partition: Annotated[int, Meta(ge=0, le=2**31 - 1, description="its number")]
    offset: Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="the offset of the next record to be read")]


class ResetTo(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The position at which the group goes on: exactly one of these."""

    earliest: Annotated[Nothing, Meta(description="at the oldest record of each partition")] | None = None
    latest: Annotated[Nothing, Meta(description="after the newest record of each partition")] | None = None
    datetime: Annotated[DateTime, Meta(description="at the first record of that time or later")] | None = None
    by_duration: (
        Annotated[Duration, Meta(description="at the first record that is younger than this at the time of the reset")]
        | None
    ) = None
    shift_by: (
        Annotated[
            int,
            Meta(
                ge=-OFFSET_MAX,
                le=OFFSET_MAX,
                description="this many offsets from the committed ones: forwards, or backwards if negative",
            ),
        ]
        | None
    ) = None
    offsets: Annotated[
        tuple[PartitionOffset, ...], Meta(max_length=RESET_OFFSETS_MAX, description="at these offsets")
    ] = ()
    group: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=GROUP_ID_LENGTH_MAX,
                description="at the committed offsets of the group with this id",
            ),
        ]
        | None
    ) = None


class Reset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Puts the group's offsets elsewhere, once for each id, and only while the group has no members."""

    id: ResetId
    to: Annotated[ResetTo, Meta(description="the position at which the group continues")]
    topics: Annotated[
        tuple[TopicNameText, ...],
        Meta(
            max_length=RESET_TOPICS_MAX,
            description="the topics to reset; left out, those with committed offsets and those that `to` names",
        ),
    ] = ()
    dry_run: Annotated[bool, Meta(description="true: nothing is done, and the status says what would be")] = False
    when_active: Annotated[
        WhenActive,
        Meta(
            description="while the group has members, Refuse does nothing, Wait does it once they are gone, ScaleDown"
            " scales spec.scaling.target to 0 and up again"
        ),
    ] = "Refuse"


class Offsets(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The changes of the group's committed offsets."""

    reset: Annotated[Reset, Meta(description="one reset")] | None = None


class LagObjective(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The lag that the group may have. The condition WithinObjective is False where one of these limits is exceeded."""

    max_records: (
        Annotated[int, Meta(ge=0, le=OFFSET_MAX, description="the most unread records, all partitions together")] | None
    ) = None
    max_seconds: (
        Annotated[
            int, Meta(ge=0, le=OFFSET_MAX, description=("the largest age of the oldest unread record, in seconds"))
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
                    "the largest unread percentage of the records that a partition keeps; at "
                    "100 some are deleted unread"
                ),
            ),
        ]
        | None
    ) = None
    for_: Annotated[
        Duration, Meta(description="how long the lag may be larger before WithinObjective is False, such as 90s, 2m")
    ] = field(default="2m", name="for")


class ScaleTarget(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The workload that runs the group's consumers, in the resource's namespace."""

    kind: Annotated[Literal["Deployment", "StatefulSet"], Meta(description="the kind, in apps/v1")] = "Deployment"
    name: Annotated[str, Meta(min_length=1, max_length=253, description="its name")]


class Scaling(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The target's replicas follow the lag; never more than the group's topics have partitions."""

    target: Annotated[ScaleTarget, Meta(description="what is scaled")]
    lag_threshold: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=OFFSET_MAX,
                description=("the lag, in records, that one replica is to handle; left out, replicas are not changed"),
            ),
        ]
        | None
    ) = None
    min: Annotated[
        int, Meta(ge=0, le=REPLICAS_MAX, description=("the fewest replicas; with 0 there are none without lag"))
    ] = 1
    max: Annotated[int, Meta(ge=1, le=REPLICAS_MAX, description="replicas at most")] = 10


class ConsumerGroupSpec(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The desired state of a consumer group."""

    cluster: Annotated[str | None, Meta(description="the Cluster's name; may be left out where there is only one")] = (
        None
    )
    group_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=GROUP_ID_LENGTH_MAX,
                description="the group's id in Kafka, if it is not metadata.name; never changes",
            ),
        ]
        | None
    ) = None
    offsets: Annotated[Offsets, Meta(description="changes of its committed offsets")] = Offsets()
    lag_objective: Annotated[LagObjective, Meta(description="the largest lag that is acceptable")] | None = None
    scaling: Annotated[Scaling, Meta(description="what runs its consumers, and their number")] | None = None
    deletion_policy: Annotated[
        GroupDeletionPolicy,
        Meta(
            description="when this resource is deleted, Retain leaves the group as it is, DeleteGroup deletes it and"
            " DeleteOffsets what it has committed, both once it has no members; Protect keeps resource and group"
        ),
    ] = "Retain"
    adopt: Annotated[
        bool, Meta(description="true: takes over a group that existed before this resource; false: refuses to")
    ] = True
    pause: Annotated[bool, Meta(description="true: the group is left as it is, deletion included")] = False


class GroupTopic(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The group's lag in one topic. Lag and seconds are rounded."""

    topic: Annotated[str, Meta(description="its name in Kafka")]
    partitions: Annotated[int, Meta(description="the partitions to which the group has committed")]
    lag: Annotated[int, Meta(description="records to be read")]
    seconds: Annotated[int, Meta(description="the seconds since the oldest unread record was written")] | None = None
    evaluation: Annotated[Evaluated, Meta(description="the worst of its partitions, by Burrow's rules")]


class GroupMember(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A consumer of the group."""

    client_id: Annotated[str, Meta(description="client.id of the consumer")]
    host: Annotated[str, Meta(description="its host")]
    partitions: Annotated[int, Meta(description="the number of its partitions")]


class PlannedOffset(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The change that a reset makes in one partition."""

    topic: Annotated[str, Meta(description="its name in Kafka")]
    partition: Annotated[int, Meta(description="its number")]
    from_: Annotated[int, Meta(description="the committed offset; left out if there is none")] | None = field(
        default=None, name="from"
    )
    to: Annotated[int, Meta(description="the offset after the reset")]


class ResetStatus(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The result of the reset, or of its dry run."""

    id: Annotated[str, Meta(description="spec.offsets.reset.id")]
    done_at: (
        Annotated[str, Meta(description="when the offsets were committed; left out as long as they are not")] | None
    ) = None
    partitions: Annotated[int, Meta(description="the partitions that the reset moves")] = 0
    skipped: Annotated[int, Meta(description="records that the group skips")] = 0
    again: Annotated[int, Meta(description="records that the group reads again")] = 0
    plan: Annotated[
        tuple[PlannedOffset, ...],
        Meta(max_length=SHOWN_PLAN_MAX, description=f"the first {SHOWN_PLAN_MAX} partitions"),
    ] = ()


class ConsumerGroupStatus(
    Status, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The state of the group at the last reconciliation. Numbers are rounded, and written at most once a minute."""

    cluster: Annotated[str | None, Meta(description="the Cluster that has the group; never changes")] = None
    group_id: Annotated[str, Meta(description="the group's id in Kafka")] | None = None
    state: Annotated[str, Meta(description="as Kafka has it: Stable, Empty, PreparingRebalance, ...")] | None = None
    members: Annotated[int, Meta(description="consumers in the group")] | None = None
    lag: Annotated[int, Meta(description="unread records, all partitions together")] | None = None
    held_back: (
        Annotated[
            int,
            Meta(
                description="of `lag`, what open transactions keep from consumers of committed records; left out at 0"
            ),
        ]
        | None
    ) = None
    seconds: Annotated[int, Meta(description="the seconds since the oldest unread record was written")] | None = None
    evaluation: Annotated[Evaluated, Meta(description="the worst of its partitions, by Burrow's rules")] | None = None
    replicas: Annotated[int, Meta(description="of spec.scaling.target, as they were set last")] | None = None
    reset: Annotated[ResetStatus, Meta(description="the reset that the spec names")] | None = None
    topics: Annotated[
        tuple[GroupTopic, ...],
        Meta(max_length=SHOWN_MAX, description=f"the {SHOWN_MAX} furthest behind of those it has committed to"),
    ] = ()
    topic_count: Annotated[int, Meta(description="how many topics it has committed to")] | None = None
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
        """The group's id in Kafka."""
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
        column("HeldBack", "integer", ".status.heldBack", wide=True),
        column("Cluster", "string", ".*.cluster", wide=True),  # From spec or status; if both have it, they agree.
        column("Reset", "string", '.status.conditions[?(@.type=="OffsetsReset")].message', wide=True),
    ),
    rules={
        ConsumerGroup: [
            {  # As long as no Cluster has the group, a wrong name can be put right. Left out, it may be said later.
                "rule": (
                    "!has(self.status) || !has(self.status.cluster) || (has(self.spec.cluster)"
                    " ? self.spec.cluster == self.status.cluster : !has(oldSelf.spec.cluster))"
                ),
                "messageExpression": (
                    "'spec.cluster is ' + (has(self.spec.cluster) ? self.spec.cluster : 'missing')"
                    " + '; allowed: ' + self.status.cluster + ', which has the group'"
                    " + (has(oldSelf.spec.cluster) ? '' : ', or leave it out')"
                ),
            },
            {  # Otherwise the target would stay at 0.
                "rule": (
                    "!has(self.status) || !has(self.status.conditions) || !has(oldSelf.spec.scaling)"
                    f" || !self.status.conditions.exists(each, each.type == '{OFFSETS_RESET}' && each.reason =="
                    f" '{SCALED_DOWN}') || (has(self.spec.scaling)"
                    " && self.spec.scaling.target == oldSelf.spec.scaling.target)"
                ),
                "message": (
                    "spec.scaling.target is scaled down for a reset; allowed: the same until the reset is over, or take"
                    " spec.offsets.reset out first and wait until the target is scaled up again"
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
                    "spec.offsets.reset.whenActive is ScaleDown and spec.scaling is missing; allowed: name what is to"
                    " be scaled in spec.scaling.target, or Refuse or Wait"
                ),
            },
        ],
        ResetTo: [
            {
                "rule": f"{_CHOSEN} == 1",
                "message": (
                    f"spec.offsets.reset.to needs exactly one of {', '.join(_TARGETS)} or offsets;"
                    " earliest and latest are written with {}"
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
