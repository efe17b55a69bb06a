"""The number of consumer replicas of a group, chosen by its lag.

The wanted number is computed as by KEDA and the HorizontalPodAutoscaler: the lag divided by `lagThreshold`, rounded up,
within `min` and `max`, and at most one replica for each partition. A target is scaled up at once, but down only after
the lag has allowed fewer replicas for `WINDOW_S`. A scale-down removes at most half of the replicas, and never
leaves a number that was too small for the same load before (`too_few`).
"""

from math import inf
from typing import Final, NamedTuple

from barnabas_operator.planning.groups.too_few import TooFew, Written, gone_down, grown_beyond, rate_of, with_look
from barnabas_operator.resources.consumer_group import Scaling

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
    """The number of partitions of the group's topics; more consumers would be idle. It is 0 if no topic is known."""
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
    looked_s: float
    changed_s: float
    went_down: bool = False
    """True if the last change was to fewer replicas."""
    calm: Calm | None = None
    too_few: TooFew | None = None
    looks: tuple[Written, ...] = ()


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
    memory = _looked(memory, replicas, now_s)
    looks = with_look(memory.looks, Written(now_s, demand.written, demand.places))
    memory = memory._replace(calm=_calm(memory.calm, demand, wanted, replicas, now_s), looks=looks)
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


def _looked(memory: Memory | None, replicas: int, now_s: float) -> Memory:
    """Return the `Memory`, updated with the observation that the target now has `replicas` replicas.

    Return a new `Memory` if there is none yet, or if another client has changed the number of replicas.
    """
    if memory is None:
        return Memory(replicas, now_s, -inf)
    if memory.replicas != replicas:
        return Memory(replicas, now_s, now_s)
    return memory._replace(looked_s=now_s, calm=memory.calm if now_s - memory.looked_s <= GAP_S else None)


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
        too_few = grown_beyond(memory.too_few, before, rate_of(memory.looks), now_s, was_try=memory.went_down)
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
    return max(half, memory.too_few.least(rate_of(memory.looks), now_s)) if memory.too_few is not None else half


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
