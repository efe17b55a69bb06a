"""Plans an offset reset from the current state of the brokers, or previews it for the user who applies it."""

from contextlib import nullcontext
from datetime import datetime
from typing import Final

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import Credentials
from barnabas_operator.kafka.group_admin import GroupAdmin
from barnabas_operator.planning.groups.group_checks import reset_warnings
from barnabas_operator.planning.groups.observed_group import GroupDescriptions
from barnabas_operator.planning.groups.reset_plan import (
    ResetPlan,
    named_topics,
    plan_reset,
    reset_partitions,
    reset_time_ms,
)
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.planning.time_text import utc_moment
from barnabas_operator.resources.consumer_group import ConsumerGroup, Reset

CONNECT_S: Final = 1.0
UNKNOWN: Final = (
    "the effect of the reset is unknown, because the brokers do not answer; the status will show the effect"
)


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


def preview(bootstrap: str, security: Credentials, group: ConsumerGroup, clock: Clock) -> tuple[str, ...]:
    """Return warnings about the effect of the reset, over a connection of its own.

    The call blocks until the brokers answer or a timeout.
    """
    reset = group.spec.offsets.reset
    if reset is None:
        return ()
    try:
        client = connected_client(bootstrap, CONNECT_S, "barnabas-operator-preview", security)
    except ClusterUnreachable:
        return (UNKNOWN,)
    try:
        admin = GroupAdmin(client, nullcontext)
        described = admin.describe([group.group_id]).groups[group.group_id]
        plan = plan_now(admin, reset, group.group_id, utc_moment(clock.now_ms()))
    except ClusterUnreachable:
        return (UNKNOWN,)
    finally:
        client.close()
    return tuple(reset_warnings(reset, group.group_id, described, plan))
