"""The checks that may refuse a ConsumerGroup, its admission, and the warnings about what a reset would do now."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.admission.verdict import AdmissionContext, Verdict
from barnabas_operator.planning.conditions import (
    INVALID_CONFIG,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    listed,
    other_cluster,
    owned_by,
)
from barnabas_operator.planning.desired_state import group_config_problems
from barnabas_operator.planning.groups.observed_group import GroupDescription, GroupSeen
from barnabas_operator.planning.groups.reset_plan import TOPIC_NOT_FOUND, Move, ResetPlan
from barnabas_operator.planning.groups.reset_step import named_members, resets_of
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupStatus, LagObjective, Reset

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
