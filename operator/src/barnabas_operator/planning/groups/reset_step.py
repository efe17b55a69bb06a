"""The one next step of a reset: decided anew each time, from what is so by then. Pure.

An operator that dies after any step is followed by one that decides the same: that a reset was carried out is with the
offsets that it committed, and what is to be scaled up again is on the target.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_core.reset_mark import reset_ids
from barnabas_operator.planning.groups.group_descriptions import GroupDescription, Member
from barnabas_operator.planning.groups.reset_plan import LEADER_NOT_AVAILABLE, counted
from barnabas_operator.planning.groups.reset_times import INVALID_RESET
from barnabas_operator.planning.groups.target_scale import TARGET_BUSY, BeforeReset, TargetScale, named
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.resources.consumer_group import SCALED_DOWN, Reset, ScaleTarget

GROUP_ACTIVE: Final = "GroupActive"
WAITING_FOR_MEMBERS: Final = "WaitingForMembers"
GIVEN_UP: Final = "GivenUp"
PASSING: Final = frozenset({LEADER_NOT_AVAILABLE, KAFKA_ERROR})
"""Reasons that go by themselves."""
PATIENCE: Final = timedelta(minutes=5)
"""For members to go once the target has no replicas: longer than a session that nobody ended lasts."""
NAMED_MAX: Final = 5
"""Members that a message names."""


class ResetLook(NamedTuple):
    """What is so now. `done_at` is when the status says that the reset was carried out; `scale` is None where no target
    is declared; None for `reset` where none is declared any more."""

    name: str
    """`metadata.name` of the ConsumerGroup."""
    group_id: str
    reset: Reset | None
    done_at: str | None
    group: GroupDescription
    target: ScaleTarget | None
    scale: TargetScale | Refusal | None
    now: datetime
    is_on_hold: bool = False
    """Nothing is reset now, for the resource or its Cluster is paused, or not ready."""

    @property
    def is_done(self) -> bool:
        """Whether it was carried out, as the status or the brokers say."""
        return self.reset is not None and (self.done_at is not None or self.reset.id in resets_of(self.group))

    @property
    def before(self) -> BeforeReset | None:
        """What the target is scaled up to after a reset of whichever group."""
        return self.scale.before if isinstance(self.scale, TargetScale) else None

    @property
    def holds_target(self) -> bool:
        """Whether the target is scaled down for this reset, or is to be: nobody else scales it now."""
        before = self.before
        return before is not None and before.group == self.name and not before.gave_up

    @property
    def members(self) -> str:
        """Who is in the group."""
        return named_members(self.group.members)


class Over(NamedTuple):
    """There is nothing to do, and nothing left to tell."""


class Done(NamedTuple):
    """The reset was carried out, and the target has what it had before."""

    at: str


class Plan(NamedTuple):
    """Say what would be done."""


class Commit(NamedTuple):
    """Plan it, and commit that."""


class Remember(NamedTuple):
    """Write this on the target; None takes it away."""

    before: BeforeReset | None


class Scale(NamedTuple):
    """Give the target so many replicas."""

    replicas: int


class Stop(NamedTuple):
    """Nothing is done now; the next look may find it otherwise."""

    why: Refusal


ResetStep = Over | Done | Plan | Commit | Remember | Scale | Stop


def next_step(look: ResetLook) -> ResetStep:
    """The first rule that has a say decides."""
    return next(step for rule in RULES if (step := rule(look)) is not None)


def without_plan(look: ResetLook, why: Refusal) -> Stop | Remember:
    """The step after there was no plan for a Commit: a target does not stay at 0 for what cannot be done."""
    before, is_passing = look.before, why.reason in PASSING
    if before is None or before.group != look.name:
        return Stop(why)
    if is_passing and look.now - _since(before, look.now) <= PATIENCE:
        return Stop(why)
    return Remember(replace(before, gave_up=why.message))


def resets_of(group: GroupDescription) -> tuple[str, ...]:
    """The resets that the group's committed offsets tell of, in each partition the last one first."""
    marks = dict.fromkeys(each.metadata for each in group.committed.values())
    return tuple(dict.fromkeys(reset_id for mark in marks for reset_id in reset_ids(mark)))


def named_members(members: Iterable[Member]) -> str:
    """Such as `2 members: a at 10.0.0.7, b at 10.0.0.8`."""
    every = list(map(str, members))
    more = f" and {len(every) - NAMED_MAX} more" if len(every) > NAMED_MAX else ""
    return f"{counted(len(every), 'member')}: {', '.join(every[:NAMED_MAX])}{more}" if every else "members that join"


def _scale_up_again(look: ResetLook) -> ResetStep | None:
    """What was scaled down for a reset that is over, or that is another one by now."""
    before, scale = look.before, look.scale
    if before is None or not isinstance(scale, TargetScale) or before.group != look.name:
        return None
    reset = look.reset
    goes_on = reset is not None and before.reset == reset.id and reset.when_active == "ScaleDown" and not reset.dry_run
    if goes_on and not (look.is_done or look.is_on_hold or before.gave_up):
        return None
    if scale.replicas == 0 and before.replicas > 0 and not before.is_up:
        return Scale(before.replicas)
    if not goes_on or look.is_done or not before.gave_up:
        return Remember(None)
    return None if before.is_up else Remember(replace(before, is_up=True))


def _on_hold(look: ResetLook) -> ResetStep | None:
    return Over() if look.is_on_hold else None


def _over(look: ResetLook) -> ResetStep | None:
    if look.reset is None:
        return Over()
    return Done(look.done_at or _stamp(look)) if look.is_done else None


def _dry_run(look: ResetLook) -> ResetStep | None:
    return Plan() if look.reset is not None and look.reset.dry_run else None


def _gave_up(look: ResetLook) -> ResetStep | None:
    """It would stand still for as long once more; another id asks for that."""
    before = look.before
    if before is None or before.group != look.name or not before.gave_up:
        return None
    problem = f"{before.gave_up}; {_target(look)} was scaled up to {before.replicas} again, and nothing was moved"
    return Stop(Refusal(GIVEN_UP, f"{problem}; to try once more give the reset another id"))


def _unknown(look: ResetLook) -> ResetStep | None:
    if not look.group.problem:
        return None
    return Stop(Refusal(KAFKA_ERROR, f"group {look.group_id}: {look.group.problem}"))


def _commit(look: ResetLook) -> ResetStep | None:
    return None if look.group.is_active else Commit()


def _refuse(look: ResetLook) -> ResetStep | None:
    if look.reset is None or look.reset.when_active != "Refuse":
        return None
    allowed = "stop them, or set spec.offsets.reset.whenActive to Wait or ScaleDown"
    return Stop(Refusal(GROUP_ACTIVE, f"group {look.group_id} has {look.members}; allowed: {allowed}"))


def _wait(look: ResetLook) -> ResetStep | None:
    if look.reset is None or look.reset.when_active != "Wait":
        return None
    return Stop(Refusal(WAITING_FOR_MEMBERS, f"group {look.group_id} has {look.members}"))


def _scale_down(look: ResetLook) -> ResetStep:
    scale, before, reset = look.scale, look.before, look.reset
    assert reset is not None
    if not isinstance(scale, TargetScale):
        missing = Refusal(INVALID_RESET, "spec.offsets.reset.whenActive is ScaleDown and spec.scaling is missing")
        return Stop(scale or missing)
    if before is None or (before.group != look.name and _is_left(scale, before)):
        return _scale_down_first(look, scale, reset)
    if before.group != look.name:
        problem = f"{_target(look)} is scaled down for the reset {before.reset} of the ConsumerGroup {before.group}"
        return Stop(Refusal(TARGET_BUSY, f"{problem}, which comes first"))
    if scale.replicas == 0 and not before.since:
        return Remember(replace(before, since=_stamp(look)))
    if look.now - _since(before, look.now) > PATIENCE:
        return Remember(replace(before, gave_up=_members_stay(look)))
    if scale.replicas > 0:
        return Scale(0)
    problem = f"{_target(look)} was scaled from {before.replicas} to 0; group {look.group_id} still has {look.members}"
    return Stop(Refusal(SCALED_DOWN, problem))


def _members_stay(look: ResetLook) -> str:
    minutes = PATIENCE.seconds // 60
    return (
        f"{_target(look)} was scaled to 0, and {minutes} minutes later group {look.group_id} still had {look.members}"
    )


def _scale_down_first(look: ResetLook, scale: TargetScale, reset: Reset) -> ResetStep:
    if scale.replicas == 0:
        problem = f"{_target(look)} has no replicas, and group {look.group_id} has {look.members}"
        return Stop(Refusal(WAITING_FOR_MEMBERS, f"{problem}, which run elsewhere"))
    return Remember(BeforeReset(look.name, reset.id, scale.replicas))


def _is_left(scale: TargetScale, before: BeforeReset) -> bool:
    """Whether what is remembered of another reset holds nobody up: it was given up, and the target is up again."""
    return before.gave_up != "" and (before.is_up or scale.replicas > 0)


def _since(before: BeforeReset, now: datetime) -> datetime:
    """From now on where it has not been at 0 yet, or others wrote what cannot be read."""
    try:
        since = datetime.fromisoformat(before.since)
    except ValueError:
        return now
    return since if since.tzinfo is not None else since.replace(tzinfo=UTC)


def _stamp(look: ResetLook) -> str:
    return f"{look.now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _target(look: ResetLook) -> str:
    return named(look.target) if look.target is not None else "spec.scaling.target"


RULES: Final[tuple[Callable[[ResetLook], ResetStep | None], ...]] = (
    _scale_up_again,
    _on_hold,
    _over,
    _dry_run,
    _gave_up,
    _unknown,
    _commit,
    _refuse,
    _wait,
    _scale_down,
)
