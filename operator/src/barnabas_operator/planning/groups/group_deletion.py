"""The steps that delete a group or its offsets when its ConsumerGroup is deleted."""

from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.groups.group_descriptions import GroupDescription
from barnabas_operator.planning.groups.reset_conditions import DRY_RUN
from barnabas_operator.planning.groups.reset_step import GROUP_ACTIVE, named_members
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.object_meta import OFFSETS_RESET, condition_of

ASKS_BROKERS: Final = frozenset({"DeleteGroup", "DeleteOffsets"})


class DeleteGroup(NamedTuple):
    """The step that deletes the group and its committed offsets."""


class DeleteOffsets(NamedTuple):
    """The step that deletes the group's committed offsets of some partitions."""

    partitions: tuple[TopicPartition, ...]


def needs_finalizer(group: ConsumerGroup) -> bool:
    """True if the operator may have work before the resource is deleted.

    The deletion policy may require the work, or a reset may have scaled the target down.
    """
    reset = group.spec.offsets.reset
    scales = reset is not None and reset.when_active == "ScaleDown"
    return scales or was_resetting(group) or group.spec.deletion_policy != "Retain"


def was_resetting(group: ConsumerGroup) -> bool:
    """True if an unfinished reset may have scaled the group's workload down, even if the spec lacks the reset now."""
    reported = condition_of(group.conditions, OFFSETS_RESET)
    return (
        group.spec.scaling is not None
        and reported is not None
        and reported.status == "False"
        and reported.reason != DRY_RUN
    )


def deletion_step(group: ConsumerGroup, found: GroupDescription) -> DeleteGroup | DeleteOffsets | Refusal | None:
    """Return the step that the deletion policy requires, a refusal if the step must wait, or None for no step."""
    if group.spec.deletion_policy not in ASKS_BROKERS:
        return None
    if found.problem:
        return Refusal(KAFKA_ERROR, f"group {group.group_id}: {found.problem}")
    if not found.is_there:
        return None
    if found.is_active:
        return still_active(group, named_members(found.members))
    if group.spec.deletion_policy == "DeleteGroup":
        return DeleteGroup()
    return DeleteOffsets(tuple(sorted(found.committed))) if found.committed else None


def still_active(group: ConsumerGroup, members: str) -> Refusal:
    """Return the refusal to delete a group that has members."""
    waits = f"spec.deletionPolicy is {group.spec.deletion_policy}, but group {group.group_id} has {members}"
    return Refusal(
        GROUP_ACTIVE,
        f"{waits}; the deletion continues after all members have left; "
        "to keep the group, set spec.deletionPolicy to Retain",
    )
