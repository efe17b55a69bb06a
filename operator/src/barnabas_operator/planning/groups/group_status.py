"""The status of a ConsumerGroup, from the observed group and the results of reset and scaling."""

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import Final

from msgspec.structs import replace

from barnabas_lag.evaluation.lags import GroupLags
from barnabas_lag.evaluation.progress import Status, worst
from barnabas_lag.evaluation.readings import Consumer
from barnabas_operator.planning.conditions import condition, conditions_of
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.groups.objective import NOBODY_YET, Judged, shown
from barnabas_operator.planning.groups.reset_conditions import known_reset
from barnabas_operator.planning.groups.work_status import WorkStatus
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import (
    SHOWN_MAX,
    ConsumerGroup,
    ConsumerGroupStatus,
    Evaluated,
    GroupMember,
    GroupTopic,
)
from barnabas_operator.resources.object_meta import READY, WITHIN_OBJECTIVE, Condition, merge_conditions

OF_LOOKS: Final = frozenset({READY, WITHIN_OBJECTIVE})
"""The types of the conditions that depend on an observation of the group.

While the group cannot be observed, `unheard` replaces or removes the conditions of these types.
"""
HOUR_S: Final = 3_600
DAY_S: Final = 24 * HOUR_S
WORDS: Final[Mapping[Status, Evaluated]] = {
    Status.OK: "OK",
    Status.WARN: "WARN",
    Status.STOP: "STOP",
    Status.STALL: "STALL",
    Status.REWIND: "REWIND",
}


def group_status(
    group: ConsumerGroup, seen: GroupSeen, work: WorkStatus, objective: Judged | None, cluster: str, now: str
) -> ConsumerGroupStatus:
    """Return the new status; `now` is in RFC 3339. `objective` is None if the spec declares no objective.

    The fields `cluster` and `groupId` of the status name the group to delete when the resource is deleted. The two
    fields stay empty until the resource manages the group.
    """
    before = group.status or ConsumerGroupStatus()
    is_ours = work.problem is None and not group.is_paused
    claimed = before.group_id or (group.group_id if is_ours else None)
    current = [*_ready(group, seen, work, objective, now), *work.conditions]
    if objective is not None:
        current.append(condition(group, WITHIN_OBJECTIVE, *objective, now))
    lags = seen.lags.partitions
    return replace(
        _kept(group, before, work),
        conditions=merge_conditions(before.conditions, current),
        observed_generation=group.metadata.generation,
        cluster=before.cluster or (cluster if claimed else None),
        group_id=claimed,
        state=seen.state,
        members=seen.members,
        lag=shown(sum(each.lag for each in lags.values())) if lags else None,
        held_back=shown(seen.held_back) or None,
        seconds=_longest(each.seconds for each in lags.values()),
        evaluation=WORDS[worst(each.status for each in lags.values())] if lags else None,
        topics=tuple(_topics(seen.lags))[:SHOWN_MAX],
        topic_count=len(seen.lags.topics) if lags else None,
        consumers=tuple(_members(seen.consumers)),
    )


def is_worth_a_write(before: ConsumerGroupStatus, after: ConsumerGroupStatus) -> bool:
    """True if a change must be written at once. Changes to numbers and messages may be written later."""
    return _without_numbers(before) != _without_numbers(after)


def unheard(group: ConsumerGroup, why: Refusal, now: str, work: WorkStatus | None = None) -> ConsumerGroup:
    """Return the resource with the status of a group that cannot be observed now; the status has no lag or members.

    `work` holds the results of the offset reset and of scaling. If `work` is None, the conditions of both are kept.
    """
    before = group.status or ConsumerGroupStatus()
    current = [*conditions_of(group, why, now)]
    if group.spec.lag_objective is not None:
        current.append(condition(group, WITHIN_OBJECTIVE, "Unknown", why.reason, why.message, now))
    said = before.conditions if work is None else work.conditions
    others = (each for each in said if each.type not in {one.type for one in current} | OF_LOOKS)
    return replace(
        group,
        status=ConsumerGroupStatus(
            conditions=merge_conditions(before.conditions, (*current, *others)),
            observed_generation=group.metadata.generation,
            cluster=before.cluster,
            group_id=before.group_id,
            reset=before.reset,
            replicas=before.replicas,
        ),
    )


def _kept(group: ConsumerGroup, before: ConsumerGroupStatus, work: WorkStatus) -> ConsumerGroupStatus:
    """Return a status with only `reset` and `replicas`, from `work` or, if `work` has no value, from `before`.

    A value in `before` is dropped if the spec no longer declares the reset or the scaling.
    """
    replicas = work.replicas if work.replicas is not None else before.replicas
    return ConsumerGroupStatus(
        reset=work.reset or known_reset(group), replicas=replicas if group.spec.scaling is not None else None
    )


def _ready(
    group: ConsumerGroup, seen: GroupSeen, work: WorkStatus, objective: Judged | None, now: str
) -> Iterator[Condition]:
    """Yield the Ready condition.

    Its message, which kubectl shows as a column, also names a missed objective and other conditions that are False.
    """
    missed = objective.message if objective is not None else ""
    expiry = _expiry(seen.lags.offsets_expire_s)
    others = (f"{each.type}: {each.message}" for each in work.conditions if each.status == "False")
    note = "; ".join(filter(None, (missed if seen.is_there else NOBODY_YET, expiry, *others)))
    return conditions_of(group, work.problem, now, note=note)


def _expiry(seconds: float | None) -> str:
    """Return the warning that the group's offsets expire within a day, or "" if they do not.

    The time left is rounded up to whole hours, so that the status seldom changes.
    """
    if seconds is None or seconds >= DAY_S:
        return ""
    hours = max(1, ceil(seconds / HOUR_S))
    return f"the group has no members, and its offsets expire within {hours} h"


def _topics(lags: GroupLags) -> Iterator[GroupTopic]:
    """Yield the topics to list in the group's status; the topic with the worst `evaluation` comes first."""
    parts: dict[str, list[float | None]] = {}
    for where, each in lags.partitions.items():
        parts.setdefault(where.topic, []).append(each.seconds)
    for name, topic in sorted(lags.topics.items(), key=lambda pair: (-pair[1].status, -pair[1].lag, pair[0])):
        yield GroupTopic(
            topic=name,
            partitions=len(parts[name]),
            lag=shown(topic.lag),
            seconds=_longest(parts[name]),
            evaluation=WORDS[topic.status],
        )


def _longest(seconds: Iterable[float | None]) -> int | None:
    known = [each for each in seconds if each is not None]
    return shown(max(known)) if known else None


def _members(consumers: Iterable[Consumer]) -> Iterator[GroupMember]:
    for each in sorted(consumers)[:SHOWN_MAX]:
        yield GroupMember(client_id=each.client_id, host=each.host, partitions=len(each.partitions))


def _without_numbers(status: ConsumerGroupStatus) -> ConsumerGroupStatus:
    conditions = (replace(each, message="", last_transition_time="") for each in status.conditions)
    return replace(
        status,
        conditions=tuple(sorted(conditions, key=lambda each: each.type)),
        lag=None,
        held_back=None,
        seconds=None,
        members=None,
        topics=(),
        topic_count=None,
        consumers=(),
    )
