"""The conditions that report a reset of offsets."""

from typing import Final

from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.groups.reset_plan import ResetPlan, counted
from barnabas_operator.planning.groups.reset_step import GIVEN_UP
from barnabas_operator.planning.groups.work_status import WorkStatus
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup, ResetStatus
from barnabas_operator.resources.object_meta import OFFSETS_RESET, Condition, condition_of

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
        return f"the reset {done.id} was carried out before, as the committed offsets show"
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
    said = condition(group, OFFSETS_RESET, "False", DRY_RUN, message, now)
    return WorkStatus(conditions=(said,), reset=plan.status(reset.id))


def reset_refused(group: ConsumerGroup, why: Refusal, now: str, *, holds_target: bool) -> WorkStatus:
    """Return the condition that says why a reset was refused or has to wait.

    `holds_target` is True if the target is scaled down for the reset. The operator then observes the group again soon.
    """
    said = condition(group, OFFSETS_RESET, "False", why.reason, why.message, now)
    return WorkStatus(conditions=(said,), is_resetting=holds_target, is_busy=holds_target)
