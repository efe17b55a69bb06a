"""Makes the plan of an offset reset from the current state of the brokers."""

from datetime import datetime

from barnabas_operator.kafka.group_admin import GroupAdmin
from barnabas_operator.planning.groups.group_descriptions import GroupDescriptions
from barnabas_operator.planning.groups.reset_plan import ResetPlan, named_topics, plan_reset, reset_partitions
from barnabas_operator.planning.groups.reset_times import reset_time_ms
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.resources.consumer_group import Reset


def plan_now(admin: GroupAdmin, reset: Reset, group_id: str, now: datetime) -> ResetPlan | Refusal:
    """Return the plan of a reset, or why the reset is refused. Raises ClusterUnreachable if no broker answers."""
    return plan_of(admin, reset, group_id, reset_descriptions(admin, reset, group_id), now)


def plan_of(
    admin: GroupAdmin, reset: Reset, group_id: str, described: GroupDescriptions, now: datetime
) -> ResetPlan | Refusal:
    """Return the plan of a reset, or a Refusal if the group, the time or the partitions prevent the reset.

    `described` has the state of the group and its logs. Only a reset to a time needs further requests to brokers.
    Raises ClusterUnreachable if no broker answers.
    """
    for each, group in described.groups.items():
        if group.problem:
            return Refusal(KAFKA_ERROR, f"group {each}: {group.problem}")
    time_ms = reset_time_ms(reset.to, now)
    if isinstance(time_ms, Refusal):
        return time_ms
    partitions = reset_partitions(reset, group_id, described)
    if isinstance(partitions, Refusal):
        return partitions
    found = admin.first_since(partitions, time_ms) if time_ms is not None else {}
    return plan_reset(reset, group_id, described, found)


def reset_descriptions(admin: GroupAdmin, reset: Reset, group_id: str) -> GroupDescriptions:
    """Describe the group, the group whose offsets the reset copies, and the topics that the reset names."""
    others = [reset.to.group] if reset.to.group is not None else []
    return admin.describe(list(dict.fromkeys([group_id, *others])), named_topics(reset))
