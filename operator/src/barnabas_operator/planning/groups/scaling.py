"""The number of consumer replicas of a group, chosen by its lag.

The wanted number is computed as by KEDA and the HorizontalPodAutoscaler: the lag divided by `lagThreshold`, rounded up,
within `min` and `max`, and at most one replica for each partition. A target is scaled up at once, but down only after
the lag has allowed fewer replicas for `WINDOW_S`. A scale-down removes at most half of the replicas, and never
leaves a number that was too small for the same load before (`too_few`).

The number of replicas that was too small for the load of a group, which the operator remembers. A group with just
enough replicas has no lag, like a group without load. If the operator did not remember the number, it would scale
the group down to that number again and again.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from barnabas_operator.planning.conditions import RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.object_names import CLUSTER_LABEL, NAME_LABEL, OPERATOR_NAME
from barnabas_operator.resources.consumer_group import ConsumerGroup, ScaleTarget, Scaling
from barnabas_operator.resources.kind import Json, foreign_json

HOLD_MIN_S: Final = 600.0
HOLD_MAX_S: Final = 6 * 3600.0
ALIKE: Final = 0.25
"""The relative difference up to which two loads count as the same."""
RATE_S: Final = 300.0


class Written(NamedTuple):
    """An observation of the log end offsets of a group's partitions at the time `now_s`.

    `total` is the sum of the offsets, and `places` the number of the partitions.
    """

    now_s: float
    total: int
    places: int


class TooFew(NamedTuple):
    """A number of `replicas` that could not keep up with `rate` records per second (None if the rate is unknown).

    Until `until_s`, the same load gets more replicas. Afterwards a scale-down may try the number again. If the number
    is too small again, the time until the next try (`hold_s`) doubles.
    """

    replicas: int
    rate: float | None
    until_s: float
    hold_s: float

    def least(self, rate: float | None, now_s: float) -> int:
        """Return the fewest replicas that a scale-down may leave at a load of `rate` records per second.

        At the load with which `replicas` could not keep up, the result is `replicas` + 1. At a lower load, the result
        is proportionally lower. After `until_s`, the result is at most `replicas`, so that a scale-down may try
        `replicas` again.
        """
        share = rate / self.rate if rate is not None and self.rate else 1.0
        needed = min(self.replicas, int(self.replicas * share * (1 + ALIKE))) + 1
        return needed if now_s < self.until_s else min(needed, self.replicas)


def grown_beyond(before: TooFew | None, replicas: int, rate: float | None, now_s: float, *, was_try: bool) -> TooFew:
    """Return a `TooFew` that says that `replicas` did not keep up with `rate` records per second.

    Its `hold_s` is HOLD_MIN_S if `before` is None or has a different rate. Otherwise `hold_s` is copied from `before`,
    and doubled up to HOLD_MAX_S if the last change was a scale-down (`was_try`).
    """
    hold_s = HOLD_MIN_S
    if before is not None and _is_alike(before.rate, rate):
        hold_s = min(before.hold_s * (2 if was_try else 1), HOLD_MAX_S)
    return TooFew(replicas, rate, now_s + hold_s, hold_s)


def _is_alike(before: float | None, now: float | None) -> bool:
    """True if the rates `before` and `now` are about equal, or one of them is unknown."""
    return before is None or now is None or abs(now - before) <= ALIKE * before


def gone_down(before: TooFew | None, replicas: int, now_s: float) -> TooFew | None:
    """Return the `TooFew` to remember after a scale-down to `replicas`: usually `before`, unchanged.

    If `replicas` were too few according to `before`, the scale-down tries them again. The result then says that
    `replicas` - 1 are too few, but the next scale-down may try `replicas` - 1 at once.
    """
    if before is None or replicas > before.replicas:
        return before
    return before._replace(replicas=max(0, replicas - 1), until_s=now_s)


def with_observation(before: tuple[Written, ...], observation: Written) -> tuple[Written, ...]:
    """Return the observations of the last `RATE_S` seconds, including the new `observation`.

    If the number of partitions (`places`) has changed or the sum of offsets (`total`) has fallen, return only the new
    observation, because no rate can be computed from the earlier observations.
    """
    if before and (before[-1].places != observation.places or before[-1].total > observation.total):
        return (observation,)
    return (*(each for each in before if observation.now_s - each.now_s <= RATE_S), observation)


def rate_of(observations: tuple[Written, ...]) -> float | None:
    """Return the records written per second, or None if there are fewer than two observations."""
    if len(observations) < 2:
        return None
    first, last = observations[0], observations[-1]
    return (last.total - first.total) / (last.now_s - first.now_s)


WINDOW_S: Final = 300.0
"""The time for which lag must be low before a target is scaled down, as in KEDA and the HorizontalPodAutoscaler."""
JOINING_S: Final = 30.0
"""The time after a change during which lag adds no replicas, because new consumers make the group rebalance."""
TOLERANCE: Final = 0.1
"""The tolerance, as in the HorizontalPodAutoscaler.

Replicas are added only if the lag exceeds the threshold by more than this share of the threshold.
"""
GAP_S: Final = 120.0
"""The longest time between two observations in a period of low lag; a longer gap ends the period."""


class Demand(NamedTuple):
    """The lag of a group, and the sizes of its topics, from which the number of replicas is computed.

    `lag` is None if the group has committed no offset in any partition that has a leader.
    """

    lag: int | None
    written: int
    """The sum of the log end offsets of the partitions with a known lag. Every write increases the sum."""
    places: int
    """The number of partitions with a known lag."""
    partitions: int
    """The number of partitions of the group's topics; more consumers would be idle.

    It is 0 if no topic is known, and for a share group, because many consumers may read one partition of it.
    """
    is_all_read: bool
    """True if no partition has lag, including partitions that no member reads any more.

    A partition without an answering leader or without a committed offset makes the value False.
    """


class Calm(NamedTuple):
    """A period in which the lag requires fewer replicas than there are.

    `since_s` is the start of the period, and `then` is the `Demand` at the start. `most` is the largest number of
    replicas that the lag has required in the period.
    """

    since_s: float
    then: Demand
    most: int


class Memory(NamedTuple):
    """The state kept between observations. A restart of the operator clears the state and so delays a scale-down."""

    replicas: int
    observed_s: float
    changed_s: float
    went_down: bool = False
    """True if the last change was to fewer replicas."""
    calm: Calm | None = None
    too_few: TooFew | None = None
    observations: tuple[Written, ...] = ()


class Decision(NamedTuple):
    """The number of replicas to set, and the reason `why` for a change; `why` is empty if the number stays the same."""

    replicas: int
    memory: Memory
    why: str = ""
    capped: str = ""
    """The message that the lag requires more replicas than there are partitions, or empty."""

    @property
    def is_change(self) -> bool:
        """True if `replicas` differs from the target's current number of replicas."""
        return self.why != ""


def decide(scaling: Scaling, demand: Demand, replicas: int, memory: Memory | None, now_s: float) -> Decision:
    """Decide how many replicas the target should have; now it has `replicas`. `now_s` is a monotonic time."""
    wanted = _wanted(scaling, demand)
    memory = _observed(memory, replicas, now_s)
    observations = with_observation(memory.observations, Written(now_s, demand.written, demand.places))
    memory = memory._replace(calm=_calm(memory.calm, demand, wanted, replicas, now_s), observations=observations)
    if replicas < scaling.min:
        decided = _at(memory, wanted, now_s, f"spec.scaling.min is {scaling.min}")
    elif replicas > scaling.max:
        decided = _at(memory, scaling.max, now_s, f"spec.scaling.max is {scaling.max}")
    elif wanted > replicas:
        decided = _up(scaling, demand, wanted, memory, now_s)
    else:
        decided = _down(scaling, demand, memory, now_s)
    return decided._replace(capped=_capped(scaling, demand))


def _wanted(scaling: Scaling, demand: Demand) -> int:
    """Return the number of replicas that the lag requires, or 1 if the lag is unknown.

    The result is limited by `max` and by the number of partitions, but is at least `min`.
    """
    by_lag = _by_lag(scaling, demand.lag) if demand.lag is not None else 1
    return max(scaling.min, min(scaling.max, demand.partitions or scaling.max, by_lag))


def _by_lag(scaling: Scaling, lag: int) -> int:
    return -(-lag // _threshold(scaling))


def _threshold(scaling: Scaling) -> int:
    if scaling.lag_threshold is None:
        raise ValueError("spec.scaling.lagThreshold is missing, so the lag cannot scale the target")
    return scaling.lag_threshold


def _observed(memory: Memory | None, replicas: int, now_s: float) -> Memory:
    """Return the `Memory`, updated with the observation that the target now has `replicas` replicas.

    Return a new `Memory` if there is none yet, or if another client has changed the number of replicas.
    """
    if memory is None:
        return Memory(replicas, now_s, -inf)
    if memory.replicas != replicas:
        return Memory(replicas, now_s, now_s)
    return memory._replace(observed_s=now_s, calm=memory.calm if now_s - memory.observed_s <= GAP_S else None)


def _calm(calm: Calm | None, demand: Demand, wanted: int, replicas: int, now_s: float) -> Calm | None:
    """Return the current period of low lag, in which the lag requires fewer than `replicas` replicas.

    Return None if the lag is unknown or not low. If the lag is known for fewer partitions than when the period began,
    return a new period.
    """
    if wanted >= replicas or demand.lag is None:
        return None
    if calm is None or demand.places < calm.then.places:
        return Calm(now_s, demand, wanted)
    return calm._replace(most=max(calm.most, wanted))


def _at(memory: Memory, replicas: int, now_s: float, why: str) -> Decision:
    """Return the decision to set the number of replicas to `replicas`, with the state to keep after the change."""
    down = replicas < memory.replicas
    changed = memory._replace(replicas=replicas, changed_s=now_s, went_down=down, calm=None)
    return Decision(replicas, changed, why)


def _stay(memory: Memory) -> Decision:
    return Decision(memory.replicas, memory)


def _up(scaling: Scaling, demand: Demand, wanted: int, memory: Memory, now_s: float) -> Decision:
    before = memory.replicas
    if before == 0:  # Without replicas, lag grows under any load, so `too_few` does not change.
        return _at(memory, wanted, now_s, _why(scaling, demand))
    is_beyond = (demand.lag or 0) > _threshold(scaling) * before * (1 + TOLERANCE)
    if not is_beyond or now_s - memory.changed_s < JOINING_S:
        return _stay(memory)
    # Just after a scale-up, lag does not show that the replicas are too few.
    if memory.went_down or now_s - memory.changed_s > WINDOW_S:
        too_few = grown_beyond(memory.too_few, before, rate_of(memory.observations), now_s, was_try=memory.went_down)
        memory = memory._replace(too_few=too_few)
    return _at(memory, wanted, now_s, _why(scaling, demand))


def _down(scaling: Scaling, demand: Demand, memory: Memory, now_s: float) -> Decision:
    """Return the decision to scale down once the lag has been low for `WINDOW_S`; until then, change nothing.

    The new number of replicas is the largest number that the lag has required in this time. One decision removes at
    most half of the replicas.
    """
    calm = memory.calm
    if calm is None or now_s - calm.since_s < WINDOW_S:
        return _stay(memory)
    if _grows(scaling, demand, memory.replicas, calm):
        return _stay(memory._replace(calm=None))
    may_stop = demand.is_all_read and demand.written == calm.then.written
    replicas = max(calm.most, _lowest(memory, now_s), 0 if may_stop else 1)
    if replicas >= memory.replicas:
        return _stay(memory)
    memory = memory._replace(too_few=gone_down(memory.too_few, replicas, now_s))
    return _at(memory, replicas, now_s, f"{_why(scaling, demand)} for {WINDOW_S / 60:.0f} minutes")


def _grows(scaling: Scaling, demand: Demand, replicas: int, calm: Calm) -> bool:
    """True if the lag has grown since the period `calm` began, so that a scale-down would be wrong.

    The result is False if the lag requires more replicas than there are partitions.
    """
    more = (demand.lag or 0) - (calm.then.lag or 0)
    return more > _threshold(scaling) * replicas * TOLERANCE and not _capped(scaling, demand)


def _lowest(memory: Memory, now_s: float) -> int:
    half = memory.replicas // 2
    return max(half, memory.too_few.least(rate_of(memory.observations), now_s)) if memory.too_few is not None else half


def _why(scaling: Scaling, demand: Demand) -> str:
    if demand.lag is None:
        return "the group has no committed offsets, so its lag is unknown until a consumer commits"
    if demand.lag == 0:
        return "no lag"
    capped = _capped(scaling, demand)
    return (
        f"the lag is {demand.lag:,}, and lagThreshold is {_threshold(scaling):,} per replica"
        f"{'; ' if capped else ''}{capped}"
    )


def _capped(scaling: Scaling, demand: Demand) -> str:
    wanted, cap = _by_lag(scaling, demand.lag or 0), demand.partitions
    if not 0 < cap < min(wanted, scaling.max):
        return ""
    partitions = "1 partition" if cap == 1 else f"{cap:,} partitions"
    return f"the group's topics have {partitions}, so more consumers would have nothing to read"


BEFORE_RESET: Final = "barnabas.dev/before-reset"
"""The annotation of a target with the number of replicas that it had before a reset scaled it down."""
TARGET_NOT_FOUND: Final = "TargetNotFound"
TARGET_REFUSED: Final = "TargetRefused"
TARGET_BUSY: Final = "TargetBusy"
"""The reason for refusing a reset: the target is scaled down for a reset of another group."""


class BeforeReset(Struct, frozen=True):
    """The content of the annotation `BEFORE_RESET`: the replicas to restore after a reset, and its progress."""

    group: str
    """The name of the ConsumerGroup, which may differ from the group id."""
    reset: str
    """The id of the reset for which the target was scaled down."""
    replicas: Annotated[int, Meta(ge=0)]
    since: str = ""
    """The time in RFC 3339 at which the target was first seen at 0 replicas, or empty."""
    gave_up: str = ""
    """The reason why the reset was given up, or empty. A reset that was given up is not tried again."""
    is_up: bool = False
    """True if the target has been scaled up again after the reset was given up."""


class TargetScale(NamedTuple):
    """The scale of a target as read from Kubernetes."""

    replicas: int
    """The declared number of replicas. More pods may run, because some may be terminating."""
    version: str
    """The resourceVersion of the target, so that a write fails if the target has changed since."""
    before: BeforeReset | None = None


def scale_of(target: ScaleTarget, found: Json | None) -> TargetScale | Refusal:
    """Return the scale of the target, or a refusal if the operator cannot scale the target.

    The operator cannot scale itself, an object of a Cluster, a target that does not exist (`found` is None), or a
    target whose annotation `BEFORE_RESET` cannot be parsed.
    """
    if found is None:
        message = f"spec.scaling.target is {named(target)}, which does not exist in this namespace; create the object"
        return Refusal(TARGET_NOT_FOUND, message)
    meta = found["metadata"]
    labels = meta.get("labels") or {}
    cluster = labels.get(CLUSTER_LABEL)
    if labels.get(NAME_LABEL) == OPERATOR_NAME:
        message = (
            f"spec.scaling.target is {named(target)}, which is the operator; the operator cannot scale itself up from 0"
        )
        return Refusal(TARGET_REFUSED, f"{message}; allowed: the workload that runs the group's consumers")
    if cluster is not None:
        message = f"spec.scaling.target is {named(target)}, but the Cluster {cluster} sets the replicas of this object"
        return Refusal(TARGET_REFUSED, f"{message}; allowed: the workload that runs the group's consumers")
    text = (meta.get("annotations") or {}).get(BEFORE_RESET)
    before = foreign_json(text, BeforeReset) if text is not None else None
    if text is not None and before is None:
        message = f"{named(target)} has the annotation {BEFORE_RESET} with the value {text}, which cannot be parsed"
        return Refusal(
            TARGET_REFUSED, f"{message}; scale the target to the replicas that you need, and remove the annotation"
        )
    return TargetScale(found["spec"].get("replicas", 1), meta["resourceVersion"], before)


def before_text(before: BeforeReset | None) -> str | None:
    """Return the value to set in the annotation `BEFORE_RESET`, or None to remove the annotation."""
    return msgspec.json.encode(before).decode() if before is not None else None


def named(target: ScaleTarget) -> str:
    """Return the kind and name of the target as text, such as `Deployment orders`."""
    return f"{target.kind} {target.name}"


class Scalers(NamedTuple):
    """The objects in a namespace that may scale a target, as JSON from the API server."""

    autoscalers: Sequence[Json]
    """The HorizontalPodAutoscalers, including those that KEDA creates for ScaledObjects."""
    groups: Sequence[Json]
    """The ConsumerGroups of all Clusters."""


def refuse_scaling(group: ConsumerGroup, scaling: Scaling, scale: TargetScale, scalers: Scalers) -> Refusal | None:
    """Refuse to scale a target that an autoscaler or an older ConsumerGroup scales, or that a reset has scaled down."""
    target = scaling.target
    before = scale.before
    if before is not None and not before.gave_up:
        problem = f"{named(target)} is scaled down for the reset {before.reset} of the ConsumerGroup {before.group}"
        return Refusal(TARGET_BUSY, problem)
    allowed = "remove spec.scaling.lagThreshold"
    autoscaler = _autoscaler_of(target, scalers.autoscalers)
    if autoscaler is not None:
        problem = f"{named(target)} is scaled by the HorizontalPodAutoscaler {autoscaler}"
        return Refusal(
            RESOURCE_CONFLICT, f"{problem}; {allowed}, or delete the autoscaler and the object that creates it"
        )
    first = min(_rivals(target, scalers.groups), default=None)
    if first is not None and first[1] != group.metadata.name:
        problem = f"{named(target)} is scaled by the ConsumerGroup {first[1]}, which is older"
        return Refusal(RESOURCE_CONFLICT, f"{problem}; {allowed}, or name another target")
    return None


def _autoscaler_of(target: ScaleTarget, autoscalers: Iterable[Json]) -> str | None:
    for each in autoscalers:
        about = each["spec"]["scaleTargetRef"]
        if (about["kind"], about["name"]) == (target.kind, target.name):
            return str(each["metadata"]["name"])
    return None


def _rivals(target: ScaleTarget, groups: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """Yield creation time and name of each ConsumerGroup that scales the target by lag and is not being deleted."""
    for each in groups:
        meta, scaling = each["metadata"], each["spec"].get("scaling") or {}
        about = scaling.get("target") or {}
        is_target = (about.get("kind", "Deployment"), about.get("name")) == (target.kind, target.name)
        if is_target and scaling.get("lagThreshold") is not None and "deletionTimestamp" not in meta:
            yield meta["creationTimestamp"], meta["name"]
