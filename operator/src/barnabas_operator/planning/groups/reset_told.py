"""What the status says of a reset. Pure."""

from dataclasses import replace
from typing import Final

from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.groups.group_told import GroupTold
from barnabas_operator.planning.groups.reset_plan import ResetPlan, counted
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup, ResetStatus
from barnabas_operator.resources.object_meta import OFFSETS_RESET, Condition, condition_of

DONE: Final = "ResetDone"
DRY_RUN: Final = "DryRun"
SCALING_UP: Final = "ScalingUp"


def known_reset(group: ConsumerGroup) -> ResetStatus | None:
    """What the status says of the reset that is declared."""
    reset, known = group.spec.offsets.reset, group.status.reset if group.status is not None else None
    return known if known is not None and reset is not None and known.id == reset.id else None


def settled(group: ConsumerGroup) -> Condition | None:
    """The condition that stays as it is until the resource changes: nothing has to be asked for it.

    A reset that was carried out, with the target scaled up again; a dry run that was planned.
    """
    told, known = condition_of(group.conditions, OFFSETS_RESET), known_reset(group)
    is_of_this = told is not None and told.observed_generation == group.metadata.generation and known is not None
    return told if told is not None and is_of_this and told.reason in (DONE, DRY_RUN) else None


def is_unfinished(group: ConsumerGroup) -> bool:
    """Whether a reset that is declared no more may have left the target scaled down. Of a paused group nothing is told,
    so it is looked at once after each change."""
    if group.spec.scaling is None or group.status is None:
        return False
    is_new = group.status.observed_generation != group.metadata.generation
    return is_new or condition_of(group.conditions, OFFSETS_RESET) is not None


def told_done(group: ConsumerGroup, told: GroupTold, done: ResetStatus, now: str) -> GroupTold:
    """It was carried out. `now` in RFC 3339, as below."""
    before = condition_of(group.conditions, OFFSETS_RESET)
    is_known = before is not None and before.status == "True" and known_reset(group) is not None
    message = before.message if before is not None and is_known else done_message(done)
    return _with(told, condition(group, OFFSETS_RESET, "True", DONE, message, now), done)


def done_message(done: ResetStatus) -> str:
    """Without a plan nobody knows any more what it did."""
    if not done.partitions:
        return f"the reset {done.id} was carried out before: the committed offsets tell so"
    counts = f"{counted(done.partitions, 'partition')}: {counted(done.skipped, 'record')} skipped"
    return f"the reset {done.id} was carried out; {counts}, {done.again:,} read again"


def told_plan(group: ConsumerGroup, told: GroupTold, plan: ResetPlan, now: str) -> GroupTold:
    """A dry run."""
    reset = group.spec.offsets.reset
    assert reset is not None
    message = f"spec.offsets.reset.dryRun is true; without it, as of {now}: {plan}"
    return _with(told, condition(group, OFFSETS_RESET, "False", DRY_RUN, message, now), plan.status(reset.id))


def told_why_not(group: ConsumerGroup, told: GroupTold, why: Refusal, now: str, *, holds_target: bool) -> GroupTold:
    """Nothing was moved. `holds_target`: somebody waits for pods, so the next look comes soon."""
    said = condition(group, OFFSETS_RESET, "False", why.reason, why.message, now)
    return replace(_with(told, said, None), is_resetting=holds_target, is_busy=told.is_busy or holds_target)


def _with(told: GroupTold, said: Condition, reset: ResetStatus | None) -> GroupTold:
    return replace(told, conditions=(*told.conditions, said), reset=reset)
