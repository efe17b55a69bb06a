"""The `Demand` of a group (its lag and topic sizes), and the condition and Events that report the scaling."""

from typing import Final

from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.groups.scaling import Decision, Demand
from barnabas_operator.planning.groups.target_scale import named
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup, ScaleTarget
from barnabas_operator.resources.object_meta import SCALING_ACTIVE, Condition

FOLLOWS_LAG: Final = "FollowsLag"
TOO_FEW_PARTITIONS: Final = "TooFewPartitions"
RESETTING: Final = Refusal("Resetting", "replicas do not follow the lag while a reset of offsets is under way")
SCALED: Final = "Scaled"
"""The reason of Events about a change to the replicas of a target."""


def demand_of(seen: GroupSeen) -> Demand:
    """Return the `Demand` of an observed group: its lag and the sizes of its topics."""
    lags = seen.counted.values()
    return Demand(
        lag=sum(each.lag for each in lags) if lags else None,
        written=sum(each.end for each in lags),
        places=len(lags),
        partitions=sum(count for topic, count in seen.partition_counts.items() if seen.is_read(topic)),
        is_all_read=_is_all_read(seen),
    )


def _is_all_read(seen: GroupSeen) -> bool:
    """True if no partition has lag, including partitions that no member reads, because a member may read them again."""
    everywhere = seen.lags.partitions
    return len(everywhere) >= sum(seen.partition_counts.values()) and not any(each.lag for each in everywhere.values())


def follows_lag(group: ConsumerGroup, seen: GroupSeen, decided: Decision, now: str) -> Condition:
    """Return the condition of a target that is scaled by lag; `now` is in RFC 3339."""
    reason = TOO_FEW_PARTITIONS if decided.capped else FOLLOWS_LAG
    message = "; ".join(filter(None, (decided.capped, seen.not_read)))
    return condition(group, SCALING_ACTIVE, "True", reason, message, now)


def not_scaled(group: ConsumerGroup, why: Refusal, now: str) -> Condition:
    """Return the condition that says why the operator does not scale the target; `now` is in RFC 3339."""
    return condition(group, SCALING_ACTIVE, "False", why.reason, why.message, now)


def scaled(target: ScaleTarget, before: int, decided: Decision) -> Said:
    """Return the Event that says from and to which number of replicas the target was scaled, and why."""
    return "Normal", SCALED, f"scaled {named(target)} from {before} to {decided.replicas} replicas: {decided.why}"
