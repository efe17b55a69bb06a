"""The admission warnings about a reset: the effect that the reset would have now."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.groups.group_descriptions import GroupDescription
from barnabas_operator.planning.groups.reset_plan import Move, ResetPlan
from barnabas_operator.planning.groups.reset_step import named_members, resets_of
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.resources.consumer_group import Reset

SHOWN_MAX: Final = 4
"""The largest number of partitions that a warning names, because the API server limits the length of warnings."""


def reset_warnings(reset: Reset, group_id: str, group: GroupDescription, plan: ResetPlan | Refusal) -> Iterator[str]:
    """Yield warnings that name the offsets that the reset would change now, and the group's members.

    If the reset would change no offsets, yield only the reason.
    """
    if reset.id in resets_of(group):
        yield f"the reset {reset.id} of group {group_id} was carried out before; another reset needs another id"
        return
    if isinstance(plan, Refusal):
        yield f"the reset {reset.id} changes no offsets: {plan.message}"
        return
    yield (
        f"the effect of the reset {reset.id} of group {group_id} "
        f"{'if dryRun were not true' if reset.dry_run else 'now'}: {plan}"
    )
    yield listed(map(_shown, plan.moves), SHOWN_MAX)
    if group.is_active:
        yield (
            f"no offsets are reset while group {group_id} has {named_members(group.members)}; "
            f"spec.offsets.reset.whenActive is {reset.when_active}"
        )


def _shown(move: Move) -> str:
    return f"{move.partition} from {'nothing' if move.before is None else move.before} to {move.to}"
