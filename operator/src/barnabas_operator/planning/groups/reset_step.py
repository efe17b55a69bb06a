"""The checks of a ConsumerGroup, and the next step of a reset, decided from the current observation alone.

An operator that restarts after any step continues the reset: the metadata of the committed offsets shows whether a
reset was carried out, and an annotation of the target keeps the number of replicas to scale up to.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_core.group_lag import reset_ids
from barnabas_operator.planning.admission import AdmissionContext, Verdict
from barnabas_operator.planning.cluster_state import group_config_problems
from barnabas_operator.planning.conditions import (
    INVALID_CONFIG,
    KAFKA_ERROR,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    listed,
    other_cluster,
    owned_by,
)
from barnabas_operator.planning.groups.reset_plan import (
    INVALID_RESET,
    LEADER_NOT_AVAILABLE,
    TOPIC_NOT_FOUND,
    GroupDescription,
    GroupSeen,
    Member,
    Move,
    ResetPlan,
    counted,
)
from barnabas_operator.planning.groups.scaling import TARGET_BUSY, BeforeReset, TargetScale, named
from barnabas_operator.resources.consumer_group import (
    SCALED_DOWN,
    ConsumerGroup,
    ConsumerGroupStatus,
    LagObjective,
    Reset,
    ScaleTarget,
)

GROUP_ACTIVE: Final = "GroupActive"
WAITING_FOR_MEMBERS: Final = "WaitingForMembers"
GIVEN_UP: Final = "GivenUp"
RESET_BEGINS: Final = "ResetBegins"
RESET_UNCLEAR: Final = "ResetUnclear"
"""The reason for not repeating a reset of a share group that may have been carried out."""
PASSING: Final = frozenset({LEADER_NOT_AVAILABLE, KAFKA_ERROR})
"""The reasons of problems that disappear without a change by a user."""
PATIENCE: Final = timedelta(minutes=5)
"""The time to wait for members to leave after the target was scaled to 0; longer than the usual session timeout."""


class ResetState(NamedTuple):
    """The observed state on which the next step of a reset depends.

    `reset` is None if no reset is declared any more. `done_at` is the time of the reset according to the status, or
    None. `scale` is None if no target is declared.
    """

    name: str
    """The `metadata.name` of the ConsumerGroup."""
    group_id: str
    reset: Reset | None
    done_at: str | None
    group: GroupDescription
    target: ScaleTarget | None
    scale: TargetScale | Refusal | None
    now: datetime
    is_on_hold: bool = False
    """True if no reset may run now, because the resource or its Cluster is paused or not ready."""
    is_declared_share: bool = False
    """True if the resource declares a share group, which a reset then makes if there is none."""
    begun_epoch: int | None = None
    """The epoch of a share group at the beginning of its reset, according to the status, or None."""

    @property
    def is_done(self) -> bool:
        """True if the reset was carried out, according to the status or the committed offsets."""
        return self.reset is not None and (self.done_at is not None or self.reset.id in resets_of(self.group))

    @property
    def share_epoch(self) -> int | None:
        """Return the epoch of the share group, which is 0 before there is one; None for other groups."""
        return share_epoch(self.group, is_declared=self.is_declared_share)

    @property
    def before(self) -> BeforeReset | None:
        """Return the target's annotation `BEFORE_RESET`, or None if no reset of any group has written it."""
        return self.scale.before if isinstance(self.scale, TargetScale) else None

    @property
    def holds_target(self) -> bool:
        """True if the target is or will be scaled down for a reset of the group, so that the lag must not scale it."""
        before = self.before
        return before is not None and before.group == self.name and not before.gave_up

    @property
    def members(self) -> str:
        """Return the members of the group as text for messages."""
        return named_members(self.group.members)


class Over(NamedTuple):
    """The step if a group has no reset to carry out or to report."""


class Done(NamedTuple):
    """The step that reports that the reset was carried out at the time `at`."""

    at: str


class Plan(NamedTuple):
    """The step of a dry run: report which offsets the reset would commit."""


class Begin(NamedTuple):
    """The step that writes the epoch of a share group into the status, before its start offsets are altered.

    Start offsets have no metadata that show later whether a reset was carried out.
    """

    epoch: int


class Commit(NamedTuple):
    """The step that plans the reset and commits its offsets."""


class Remember(NamedTuple):
    """The step that writes the replicas and progress in `before` to an annotation of the target.

    If `before` is None, the step removes the annotation.
    """

    before: BeforeReset | None


class Scale(NamedTuple):
    """The step that sets the replicas of the target."""

    replicas: int


class Stop(NamedTuple):
    """The step that changes nothing and waits for the next observation; `why` is the reason."""

    why: Refusal


ResetStep = Over | Done | Plan | Begin | Commit | Remember | Scale | Stop


def next_step(state: ResetState) -> ResetStep:
    """Return the next step of a reset: the result of the first rule in `RULES` that does not return None."""
    return next(step for rule in RULES if (step := rule(state)) is not None)


def without_plan(state: ResetState, why: Refusal) -> Stop | Remember:
    """Return the next step of a reset that could not be planned for the reason `why`.

    If the target is scaled down for the reset, the reset is given up, so that the target is scaled up again. If the
    problem may disappear without a user, the reset is given up only once the target has been scaled down for
    `PATIENCE`.
    """
    before, is_passing = state.before, why.reason in PASSING
    if before is None or before.group != state.name:
        return Stop(why)
    if is_passing and state.now - _since(before, state.now) <= PATIENCE:
        return Stop(why)
    return Remember(replace(before, gave_up=why.message))


def share_epoch(group: GroupDescription, *, is_declared: bool) -> int | None:
    """Return the epoch of a share group; 0 if there is no group and a share group is declared, and None otherwise."""
    return 0 if is_declared and not group.is_there else group.share_epoch


def resets_of(group: GroupDescription) -> tuple[str, ...]:
    """Return the reset ids in the metadata of the group's committed offsets.

    For each partition, the id of the last reset comes before the ids of earlier resets.
    """
    marks = dict.fromkeys(each.metadata for each in group.committed.values())
    return tuple(dict.fromkeys(reset_id for mark in marks for reset_id in reset_ids(mark)))


def named_members(members: Iterable[Member]) -> str:
    """Return the members as text, such as `2 members: a at 10.0.0.7, b at 10.0.0.8`."""
    every = list(members)
    return f"{counted(len(every), 'member')}: {listed(every)}" if every else "members that are joining"


def _scale_up_again(state: ResetState) -> ResetStep | None:
    """Return the next of two steps at the end of a reset: scale the target up, then change its annotation.

    Return None if the reset has not ended, or if both steps are done.
    """
    before, scale = state.before, state.scale
    if before is None or not isinstance(scale, TargetScale) or before.group != state.name:
        return None
    reset = state.reset
    goes_on = reset is not None and before.reset == reset.id and reset.when_active == "ScaleDown" and not reset.dry_run
    if goes_on and not (state.is_done or state.is_on_hold or before.gave_up):
        return None
    if scale.replicas == 0 and before.replicas > 0 and not before.is_up:
        return Scale(before.replicas)
    if not goes_on or state.is_done or not before.gave_up:
        return Remember(None)
    return None if before.is_up else Remember(replace(before, is_up=True))


def _on_hold(state: ResetState) -> ResetStep | None:
    return Over() if state.is_on_hold else None


def _over(state: ResetState) -> ResetStep | None:
    if state.reset is None:
        return Over()
    return Done(state.done_at or _stamp(state)) if state.is_done else None


def _dry_run(state: ResetState) -> ResetStep | None:
    return Plan() if state.reset is not None and state.reset.dry_run else None


def _gave_up(state: ResetState) -> ResetStep | None:
    """Refuse to repeat a reset that the operator has given up. A user can try again with a new reset id."""
    before = state.before
    if before is None or before.group != state.name or not before.gave_up:
        return None
    problem = f"{before.gave_up}; {_target(state)} was scaled up to {before.replicas} again, and no offset was changed"
    return Stop(Refusal(GIVEN_UP, f"{problem}; to try again, give the reset another id"))


def _unknown(state: ResetState) -> ResetStep | None:
    if not state.group.problem:
        return None
    return Stop(Refusal(KAFKA_ERROR, f"group {state.group_id}: {state.group.problem}"))


def _begin(state: ResetState) -> ResetStep | None:
    """Return the next step of a reset of a share group, unless its offsets may be altered, or it has members.

    An alteration of the offsets raises the epoch by one, as does each member that joins or leaves.
    """
    epoch, begun = state.share_epoch, state.begun_epoch
    if epoch is None or epoch == begun:
        return None
    if begun is None:
        return None if state.group.is_active else Begin(epoch)
    if epoch == begun + 1 and not state.group.is_active:
        return Done(_stamp(state))
    problem = f"the epoch of the share group {state.group_id} was {begun} when the reset began, and is {epoch} now"
    unclear = (
        f"{problem}, so that nobody knows whether the reset was carried out; to reset it, give the reset another id"
    )
    return without_plan(state, Refusal(RESET_UNCLEAR, unclear))


def _commit(state: ResetState) -> ResetStep | None:
    return None if state.group.is_active else Commit()


def _refuse(state: ResetState) -> ResetStep | None:
    if state.reset is None or state.reset.when_active != "Refuse":
        return None
    allowed = "stop these members, or set spec.offsets.reset.whenActive to Wait or ScaleDown"
    return Stop(Refusal(GROUP_ACTIVE, f"group {state.group_id} has {state.members}; {allowed}"))


def _wait(state: ResetState) -> ResetStep | None:
    if state.reset is None or state.reset.when_active != "Wait":
        return None
    return Stop(
        Refusal(WAITING_FOR_MEMBERS, f"waiting until group {state.group_id} has no members; now it has {state.members}")
    )


def _scale_down(state: ResetState) -> ResetStep:
    scale, before, reset = state.scale, state.before, state.reset
    assert reset is not None
    if not isinstance(scale, TargetScale):
        missing = Refusal(INVALID_RESET, "spec.offsets.reset.whenActive is ScaleDown, but spec.scaling is missing")
        return Stop(scale or missing)
    if before is None or (before.group != state.name and _is_left(scale, before)):
        return _scale_down_first(state, scale, reset)
    if before.group != state.name:
        problem = f"{_target(state)} is scaled down for the reset {before.reset} of the ConsumerGroup {before.group}"
        return Stop(Refusal(TARGET_BUSY, f"{problem}; this reset begins after that reset has ended"))
    if scale.replicas == 0 and not before.since:
        return Remember(replace(before, since=_stamp(state)))
    if state.now - _since(before, state.now) > PATIENCE:
        return Remember(replace(before, gave_up=_members_stay(state)))
    if scale.replicas > 0:
        return Scale(0)
    problem = (
        f"{_target(state)} was scaled from {before.replicas} to 0, but group {state.group_id} still has {state.members}"
    )
    return Stop(Refusal(SCALED_DOWN, problem))


def _members_stay(state: ResetState) -> str:
    minutes = PATIENCE.seconds // 60
    left = f"group {state.group_id} still had {state.members}"
    return f"{_target(state)} was scaled to 0, and {minutes} minutes later {left}"


def _scale_down_first(state: ResetState, scale: TargetScale, reset: Reset) -> ResetStep:
    if scale.replicas == 0:
        problem = f"{_target(state)} has no replicas, but group {state.group_id} has {state.members}"
        return Stop(Refusal(WAITING_FOR_MEMBERS, f"{problem}; stop these members, which are not pods of this workload"))
    return Remember(BeforeReset(state.name, reset.id, scale.replicas))


def _is_left(scale: TargetScale, before: BeforeReset) -> bool:
    """True if another group's reset was given up, and the target was scaled up again.

    The reset of this group may then scale the target down.
    """
    return before.gave_up != "" and (before.is_up or scale.replicas > 0)


def _since(before: BeforeReset, now: datetime) -> datetime:
    """Return when the target was first seen at 0 replicas, or `now` if the target's annotation has no valid time."""
    try:
        since = datetime.fromisoformat(before.since)
    except ValueError:
        return now
    return since if since.tzinfo is not None else since.replace(tzinfo=UTC)


def _stamp(state: ResetState) -> str:
    return f"{state.now.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _target(state: ResetState) -> str:
    return named(state.target) if state.target is not None else "spec.scaling.target"


RULES: Final[tuple[Callable[[ResetState], ResetStep | None], ...]] = (
    _scale_up_again,
    _on_hold,
    _over,
    _dry_run,
    _gave_up,
    _unknown,
    _begin,
    _commit,
    _refuse,
    _wait,
    _scale_down,
)


GroupCheck = Callable[[ConsumerGroup, ConsumerGroup, GroupSeen], Refusal | None]
"""The type of a check: it gets the resource, the resource that owns the group, and the observed group."""


def refuse_group(group: ConsumerGroup, owner: ConsumerGroup, seen: GroupSeen) -> Refusal | None:
    """Return the refusal of the first check that refuses the resource, or None."""
    return next((refusal for check in CHECKS if (refusal := check(group, owner, seen)) is not None), None)


def is_claimed(group: ConsumerGroup) -> bool:
    """True if the resource has managed its group before, so that its deletionPolicy applies to the group."""
    return group.status is not None and group.status.group_id == group.group_id


def of_the_oldest(group: ConsumerGroup, owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a resource if an older resource manages the same group."""
    return owned_by(owner, group.group_id) if owner is not group else None


def same_group_as_before(group: ConsumerGroup, _owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a group id other than that in the status, because Kafka cannot rename a group."""
    had = (group.status or ConsumerGroupStatus()).group_id
    if had in (None, group.group_id):
        return None
    return Refusal(
        NOT_SUPPORTED, f"Changing spec.groupId is not supported: the group id is {group.group_id}; allowed: {had}"
    )


def same_cluster_as_before(group: ConsumerGroup, _owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse a Cluster other than that in the status, because a group cannot move to another cluster."""
    return other_cluster(group, (group.status or ConsumerGroupStatus()).cluster)


def may_adopt(group: ConsumerGroup, _owner: ConsumerGroup, seen: GroupSeen) -> Refusal | None:
    """Refuse a group that existed before the resource, unless spec.adopt is true."""
    if group.spec.adopt or is_claimed(group) or not seen.is_there:
        return None
    message = f"group {group.group_id} existed before the ConsumerGroup, and spec.adopt is false"
    return Refusal(RESOURCE_CONFLICT, f"{message}; to adopt the group, set spec.adopt to true")


GROUP_TYPE_DIFFERS: Final = "GroupTypeDiffers"
TYPES: Final[Mapping[str, tuple[str, ...]]] = {"consumer": ("classic", "consumer"), "share": ("share",)}
"""The types of groups in Kafka that a declared type allows."""


def declared_type(group: ConsumerGroup, _owner: ConsumerGroup, seen: GroupSeen) -> Refusal | None:
    """Refuse a group whose type in Kafka is not the declared one."""
    declared, real = group.spec.type, seen.group_type
    if declared is None or real is None or real in TYPES[declared]:
        return None
    problem = f"spec.type is {declared}, but group {group.group_id} is of type {real} in Kafka"
    allowed = f"allowed: {' or '.join(TYPES[declared])}"
    return Refusal(GROUP_TYPE_DIFFERS, f"{problem}; {allowed}. Change spec.type, or use another group id")


def valid_config(group: ConsumerGroup, _owner: ConsumerGroup, _seen: GroupSeen) -> Refusal | None:
    """Refuse configs that are unknown or have invalid values."""
    problems = group_config_problems(group.spec.config or {})
    return Refusal(INVALID_CONFIG, "; ".join(f"spec.config {each}" for each in problems)) if problems else None


DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_ENABLE: Final = "errors.deadletterqueue.group.enable"
TOPIC_NOT_ENABLED: Final = "TopicNotEnabled"
TOPIC_IS_SOURCE: Final = "TopicIsSource"


class DeadLetterTopic(NamedTuple):
    """The topic that the brokers have as the one for the dead letters of a share group."""

    name: str
    is_enabled: bool | None
    """True if the topic has errors.deadletterqueue.group.enable=true; None if there is no such topic."""
    is_created: bool
    """True if a topic of this name is created with its first dead letter."""


def refuse_dead_letters(found: DeadLetterTopic, sources: Collection[str]) -> Refusal | None:
    """Return why the brokers archive records of these topics without dead letters, or None."""
    if found.name in sources:
        return _without_dead_letters(TOPIC_IS_SOURCE, found.name, "a topic that the group reads")
    if found.is_enabled is None and not found.is_created:
        return _without_dead_letters(TOPIC_NOT_FOUND, found.name, "a topic that does not exist")
    if found.is_enabled is False:
        return _without_dead_letters(TOPIC_NOT_ENABLED, found.name, f"a topic without {DEAD_LETTER_ENABLE}=true")
    return None


def _without_dead_letters(reason: str, name: str, problem: str) -> Refusal:
    is_broken = f"{DEAD_LETTER_TOPIC} of the group is {name}, {problem}, so records are archived without dead letters"
    allowed = f"allowed: an existing topic with {DEAD_LETTER_ENABLE}=true that the group does not read"
    return Refusal(reason, f"{is_broken}; {allowed}")


CHECKS: Final[tuple[GroupCheck, ...]] = (
    of_the_oldest,
    same_cluster_as_before,
    same_group_as_before,
    may_adopt,
    declared_type,
    valid_config,
)


def review_group(wanted: ConsumerGroup, before: ConsumerGroup | None, context: AdmissionContext) -> Verdict:
    """Refuse to move a ConsumerGroup to another Cluster, or to manage a group that another resource already manages.

    A paused resource may name a group that another resource manages. Without a refusal, return warnings.
    """
    if not wanted.is_paused and context.taken_by is not None:
        taken = f"group {wanted.group_id} is already managed by the ConsumerGroup {context.taken_by}"
        return Verdict(f"{taken}; only one ConsumerGroup may manage a group")
    moves = other_cluster(wanted, before.status.cluster if before is not None and before.status is not None else None)
    if moves is not None:
        return Verdict(moves.message)
    problems = group_config_problems(wanted.spec.config or {})
    if problems:
        return Verdict("; ".join(f"spec.config {each}" for each in problems))
    return Verdict(warnings=tuple(_warnings(wanted)))


def _warnings(wanted: ConsumerGroup) -> Iterator[str]:
    objective = wanted.spec.lag_objective
    if objective is not None and objective == LagObjective(for_=objective.for_):
        yield "spec.lagObjective has no limit, so it is always met; set maxRecords, maxSeconds or maxRetentionPercent"


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
