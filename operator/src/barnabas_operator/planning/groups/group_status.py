"""The status of a ConsumerGroup, from the observed group and the results of reset and scaling."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from math import ceil
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import Consumer, GroupLags, Status, worst
from barnabas_operator.planning.conditions import KAFKA_ERROR, Refusal, condition, condition_before, conditions_of
from barnabas_operator.planning.groups.reset_plan import (
    MISSED,
    NOBODY_YET,
    NOT_FOUND,
    GroupDescription,
    GroupSeen,
    Judged,
    ResetPlan,
    counted,
    shown,
)
from barnabas_operator.planning.groups.reset_step import GIVEN_UP, GROUP_ACTIVE, RESET_BEGINS, named_members
from barnabas_operator.planning.groups.scaling import Decision, Demand, named
from barnabas_operator.planning.object_names import EventText
from barnabas_operator.resources.consumer_group import (
    SHOWN_MAX,
    ConsumerGroup,
    ConsumerGroupStatus,
    Evaluated,
    GroupMember,
    GroupTopic,
    ResetStatus,
    ScaleTarget,
)
from barnabas_operator.resources.kind import (
    DEAD_LETTERS_ENABLED,
    OFFSETS_RESET,
    READY,
    SCALING_ACTIVE,
    WITHIN_OBJECTIVE,
    Condition,
    Json,
    condition_of,
    merge_conditions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkStatus:
    """The results of reset and scaling so far.

    If `reset` or `replicas` is None, the status keeps the field's earlier value, unless the spec no longer declares a
    reset or scaling.
    """

    problem: Refusal | None = None
    """The reason why `Ready` is False, or None if `Ready` is True."""
    conditions: tuple[Condition, ...] = ()
    """The conditions of the new status besides Ready and WithinObjective.

    Conditions of the old status that are not in this tuple are dropped.
    """
    reset: ResetStatus | None = None
    replicas: int | None = None
    is_resetting: bool = False
    """True if a reset is in progress or waits; the operator then must not scale the target by its lag."""
    is_busy: bool = False
    """True if the operator must observe the group again soon."""

    def with_condition(self, added: Condition) -> "WorkStatus":
        """Return a copy with one condition more."""
        return replace_fields(self, conditions=(*self.conditions, added))


DONE: Final = "ResetDone"
DRY_RUN: Final = "DryRun"
ON_HOLD: Final = "OnHold"


def known_reset(group: ConsumerGroup) -> ResetStatus | None:
    """Return `status.reset` if it is about the declared reset, or else None."""
    reset, known = group.spec.offsets.reset, group.status.reset if group.status is not None else None
    return known if known is not None and reset is not None and known.id == reset.id else None


def final_condition(group: ConsumerGroup) -> Condition | None:
    """Return the condition of a finished reset, or None if no reset has finished.

    The condition stays until the resource changes. A reset has finished if it was carried out or given up; a dry run
    has finished if its plan was made.
    """
    reported, known = condition_of(group.conditions, OFFSETS_RESET), known_reset(group)
    if reported is None or reported.observed_generation != group.metadata.generation:
        return None
    is_final = reported.reason == GIVEN_UP or (known is not None and reported.reason in (DONE, DRY_RUN))
    return reported if is_final else None


def is_unfinished(group: ConsumerGroup) -> bool:
    """True if a reset that was removed from the spec may have left the target scaled down.

    After a change of the spec, the result is True until the operator writes a new status: the group may have been
    paused, and the status of a paused group does not show whether a reset is unfinished.
    """
    if group.spec.scaling is None or group.status is None:
        return False
    is_new = group.status.observed_generation != group.metadata.generation
    return is_new or condition_of(group.conditions, OFFSETS_RESET) is not None


def may_hold_target(group: ConsumerGroup) -> bool:
    """True if a reset may have scaled the target down and not yet up again, according to the status."""
    reported = condition_of(group.conditions, OFFSETS_RESET)
    is_of_this = group.status is not None and group.status.observed_generation == group.metadata.generation
    is_up = reported is None or reported.reason in (DONE, DRY_RUN, GIVEN_UP, ON_HOLD)
    return group.spec.scaling is not None and not (is_of_this and is_up)


def on_hold(group: ConsumerGroup, refusal: Refusal | None, why: str, now: str) -> Condition | None:
    """Return the condition of a reset that is on hold because of `why`, or None if no reset is declared.

    If the target could not be scaled up again, the condition reports `refusal` instead, even without a declared reset.
    """
    if refusal is not None:
        return condition(group, OFFSETS_RESET, "False", refusal.reason, refusal.message, now)
    if group.spec.offsets.reset is None:
        return None
    message = f"{why}; no offsets are reset, and the target is scaled up again"
    return condition(group, OFFSETS_RESET, "False", ON_HOLD, message, now)


def reset_done(group: ConsumerGroup, done: ResetStatus, now: str) -> WorkStatus:
    """Return the condition that says that the reset was carried out; `now` is in RFC 3339."""
    before = condition_of(group.conditions, OFFSETS_RESET)
    is_known = before is not None and before.status == "True" and known_reset(group) is not None
    message = before.message if before is not None and is_known else done_message(done)
    return WorkStatus(conditions=(condition(group, OFFSETS_RESET, "True", DONE, message, now),), reset=done)


def done_message(done: ResetStatus) -> str:
    """Return the message that a reset was carried out; without counts if the planned offsets are unknown."""
    if not done.partitions:
        return f"the reset {done.id} was carried out before, as the group shows"
    counts = (
        f"the offsets of {counted(done.partitions, 'partition')} were set; "
        f"the group skips {counted(done.skipped, 'record')}"
    )
    return f"the reset {done.id} was carried out: {counts} and reads {done.again:,} again"


def reset_planned(group: ConsumerGroup, plan: ResetPlan, now: str) -> WorkStatus:
    """Return the plan of a dry run, for `status.reset` and in the condition OffsetsReset."""
    reset = group.spec.offsets.reset
    assert reset is not None
    message = f"spec.offsets.reset.dryRun is true; the plan at {now} is: {plan}"
    reported = condition(group, OFFSETS_RESET, "False", DRY_RUN, message, now)
    return WorkStatus(conditions=(reported,), reset=plan.status(reset.id))


def reset_begun(group: ConsumerGroup, epoch: int, now: str, *, holds_target: bool) -> WorkStatus:
    """Return the status of a reset whose offsets are altered at the next look, if the share group has that epoch."""
    reset = group.spec.offsets.reset
    assert reset is not None
    message = f"the reset begins at epoch {epoch} of the share group"
    reported = condition(group, OFFSETS_RESET, "False", RESET_BEGINS, message, now)
    begun = ResetStatus(id=reset.id, group_epoch=epoch)
    return WorkStatus(conditions=(reported,), reset=begun, is_resetting=holds_target, is_busy=True)


def reset_refused(group: ConsumerGroup, why: Refusal, now: str, *, holds_target: bool) -> WorkStatus:
    """Return the condition that says why a reset was refused or has to wait.

    `holds_target` is True if the target is scaled down for the reset. The operator then observes the group again soon.
    """
    reported = condition(group, OFFSETS_RESET, "False", why.reason, why.message, now)
    return WorkStatus(conditions=(reported,), is_resetting=holds_target, is_busy=holds_target)


OF_OBSERVATIONS: Final = frozenset({READY, WITHIN_OBJECTIVE})
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
        type=seen.group_type,
        members=seen.members,
        lag=_lag(seen),
        held_back=shown(seen.held_back) or None,
        seconds=_longest(each.seconds for each in lags.values()),
        evaluation=WORDS[worst(each.status for each in lags.values())] if lags else None,
        topics=tuple(_topics(seen.lags))[:SHOWN_MAX],
        topic_count=len(seen.lags.topics) if lags else None,
        consumers=tuple(_members(seen.consumers)),
    )


def _lag(seen: GroupSeen) -> int | None:
    """Return the records that are unread; None if unknown, as where a share group has not begun a partition."""
    lags = seen.lags.partitions
    if not lags or (seen.shares_partitions and seen.silent):
        return None
    return shown(sum(each.lag for each in lags.values()))


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
    known = before.conditions if work is None else work.conditions
    others = (each for each in known if each.type not in {one.type for one in current} | OF_OBSERVATIONS)
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


STALLED: Final[Mapping[str, tuple[str, str]]] = {
    "STALL": ("GroupStalled", "the group has members and lag, and its committed offsets do not move"),
    "STOP": ("GroupStopped", "the group has lag and no members"),
    "REWIND": ("GroupRewound", "the group's committed offsets moved backwards"),
}
"""The reason and the message of the Event for each of Burrow's statuses that is worth a warning."""
GONE: Final = "GroupGone"
RESET: Final = "OffsetsReset"


def group_events(group: ConsumerGroup, before: Json) -> Iterator[EventText]:
    """Yield the Events for the change from `before`, the earlier status as JSON, to the group's status.

    Events report a missed or regained objective, a group that stalled, a finished reset, and a group that is gone.
    """
    status = group.status or ConsumerGroupStatus()
    yield from _objective(status, before)
    yield from _reset(status, before)
    word = status.evaluation
    if word is not None and word in STALLED and before.get("evaluation") != word:
        yield "Warning", *STALLED[word]
    if status.state == NOT_FOUND and before.get("state") not in (None, NOT_FOUND):
        yield "Warning", GONE, "the group no longer exists: it was deleted, or its committed offsets have expired"


def _reset(status: ConsumerGroupStatus, before: Json) -> Iterator[EventText]:
    """Yield an Event after a reset has committed its offsets, once for each reset id."""
    done, was = status.reset, before.get("reset") or {}
    if done is None or done.done_at is None or (was.get("id") == done.id and "doneAt" in was):
        return
    yield "Normal", RESET, done_message(done)


def _objective(status: ConsumerGroupStatus, before: Json) -> Iterator[EventText]:
    reported, was = condition_of(status.conditions, WITHIN_OBJECTIVE), condition_before(before, WITHIN_OBJECTIVE)
    if reported is None or reported.status == was.get("status"):
        return
    if reported.reason == MISSED:
        yield "Warning", reported.reason, reported.message
    elif reported.status == "True" and was.get("reason") == MISSED:
        yield "Normal", reported.reason, "the lag is within spec.lagObjective again"


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
        partitions=0
        if seen.shares_partitions
        else sum(count for topic, count in seen.partition_counts.items() if seen.is_read(topic)),
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


TOPIC_ENABLED: Final = "TopicEnabled"


def dead_letters_enabled(group: ConsumerGroup, why: Refusal | None, now: str) -> Condition:
    """Return the condition of a share group with a topic for dead letters; `why` says why it gets none."""
    if why is None:
        return condition(group, DEAD_LETTERS_ENABLED, "True", TOPIC_ENABLED, "", now)
    return condition(group, DEAD_LETTERS_ENABLED, "False", why.reason, why.message, now)


def scaled(target: ScaleTarget, before: int, decided: Decision) -> EventText:
    """Return the Event that says from and to which number of replicas the target was scaled, and why."""
    return "Normal", SCALED, f"scaled {named(target)} from {before} to {decided.replicas} replicas: {decided.why}"
