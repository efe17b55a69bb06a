"""The replicas of a group's consumers rise at once, fall later, stay within bounds, and do not flap."""

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag, Status
from barnabas_operator.planning.groups.group_status import demand_of, follows_lag
from barnabas_operator.planning.groups.reset_plan import GroupSeen
from barnabas_operator.planning.groups.scaling import HOLD_MIN_S, WINDOW_S, Decision, Demand, Memory, decide
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, ScaleTarget, Scaling
from barnabas_operator.resources.kind import ObjectMeta
from harness.soak import size

POLL_S = 15.0
HOUR_S = 3600.0
CHANGES_MAX = 36
"""The most changes in twelve hours of the hardest load that was found; half of random loads have at most 6."""
TARGET = ScaleTarget(name="billing")


def scaling(least: int = 1, most: int = 12, threshold: int = 1000) -> Scaling:
    return Scaling(target=TARGET, lag_threshold=threshold, min=least, max=most)


def demand(
    lag: int | None, *, written: int = 0, partitions: int = 12, places: int = 12, is_all_read: bool | None = None
) -> Demand:
    return Demand(lag, written, places, partitions, is_all_read=lag == 0 if is_all_read is None else is_all_read)


def seen(lags: dict[tuple[str, int], int], topics_read: frozenset[str] | None = None, **partitions: int) -> GroupSeen:
    """Return a group with these lags by topic and partition; `partitions` has the number for each topic."""
    found = {
        TopicPartition(*where): PartitionLag(10, 10 + lag, lag, 10, 0.0, 0.0, Status.OK) for where, lag in lags.items()
    }
    counts = partitions or {topic: 1 for topic, _ in lags}
    return GroupSeen(state="Stable", lags=GroupLags(1, found, {}), partition_counts=counts, topics_read=topics_read)


class Story:
    """A series of looks at one group, one each `POLL_S`; the target follows every decision at once."""

    def __init__(self, declared: Scaling, replicas: int) -> None:
        self.declared = declared
        self.replicas = replicas
        self.now_s = 1000.0
        self.memory: Memory | None = None
        self.changes: list[tuple[float, int, str]] = []

    def look(self, seen: Demand, after_s: float = POLL_S) -> Decision:
        self.now_s += after_s
        decided = decide(self.declared, seen, self.replicas, self.memory, self.now_s)
        if decided.replicas != self.replicas:
            self.changes.append((self.now_s, decided.replicas, decided.why))
        else:
            assert decided.why == "", "a decision without a change has no reason"
        self.replicas, self.memory = decided.replicas, decided.memory
        return decided

    def looks(self, seen: Iterable[Demand]) -> "Story":
        for each in seen:
            self.look(each)
        return self

    def for_seconds(self, seconds: float, lag: int | None, *, written: int = 0) -> "Story":
        return self.looks([demand(lag, written=written)] * int(seconds / POLL_S))


def test_replicas_rise_at_once_to_the_number_that_the_lag_requires() -> None:
    decided = Story(scaling(), 2).look(demand(4800))
    assert (decided.replicas, decided.why) == (5, "the lag is 4,800, and lagThreshold is 1,000 per replica")


def test_a_lag_slightly_above_the_threshold_does_not_raise_replicas() -> None:
    assert Story(scaling(), 5).look(demand(5500)).replicas == 5
    assert Story(scaling(), 5).look(demand(5501)).replicas == 6


def test_replicas_rise_again_only_after_consumers_had_time_to_join() -> None:
    story = Story(scaling(), 1)
    assert story.look(demand(3000)).replicas == 3
    assert story.look(demand(9000)).replicas == 3
    assert story.look(demand(9000)).replicas == 9


def test_replicas_fall_by_at_most_half_after_five_minutes_without_lag() -> None:
    story = Story(scaling(), 12).for_seconds(WINDOW_S, 0)
    assert story.changes == []
    story.look(demand(0))
    assert story.changes == [(story.now_s, 6, "no lag for 5 minutes")]
    story.for_seconds(HOUR_S, 0)
    assert [replicas for _, replicas, _ in story.changes] == [6, 3, 1]


def test_replicas_stay_at_the_most_that_the_lag_required_in_five_minutes() -> None:
    story = Story(scaling(), 6)
    for _ in range(100):
        story.looks([demand(4200), demand(0), demand(0)])
    assert story.replicas == 5


def test_replicas_do_not_fall_while_the_lag_grows() -> None:
    story = Story(scaling(), 6).looks(demand(lag) for lag in range(0, 5000, 200))
    assert story.changes == []


def test_replicas_fall_to_zero_only_if_that_is_allowed_and_no_producer_writes() -> None:
    assert Story(scaling(least=1), 1).for_seconds(HOUR_S, 0).replicas == 1
    busy = Story(scaling(least=0), 1).looks(demand(0, written=n // 10) for n in range(1000))
    assert busy.replicas == 1, "the lag is 0, but producers write"
    silent = Story(scaling(least=0), 1).for_seconds(WINDOW_S, 0, written=7)
    assert silent.look(demand(0, written=7)).why == "no lag for 5 minutes"
    assert silent.replicas == 0


def test_a_share_group_has_more_replicas_than_partitions_if_its_backlog_requires_them() -> None:
    found = replace(seen({("tasks", 0): 10_000}, tasks=1), shares_partitions=True)
    assert demand_of(found).partitions == 0
    story = Story(scaling(), 1).looks([demand_of(found)] * 10)
    assert story.replicas > 1


def test_one_replica_stays_while_a_partition_is_unread_or_unknown() -> None:
    read = frozenset({"flights"})
    for found in (
        seen({("flights", 0): 0}, flights=2),
        seen({("flights", 0): 0}, read, flights=1, old=1),
        seen({("flights", 0): 0, ("old", 0): 5}, read),
    ):
        story = Story(scaling(least=0), 1).looks([demand_of(found)] * int(HOUR_S / POLL_S))
        assert story.changes == []


def test_a_topic_that_no_member_reads_any_more_requires_no_replicas() -> None:
    found = seen({("flights", 0): 500, ("old", 0): 90_000}, frozenset({"flights"}), flights=3, old=12)
    assert demand_of(found) == Demand(lag=500, written=510, places=1, partitions=3, is_all_read=False)
    story = Story(scaling(), 1).looks([demand_of(found)] * 100)
    assert story.changes == []


def test_the_condition_names_topics_whose_lag_is_ignored() -> None:
    found = seen({("flights", 0): 500, ("old", 0): 90_000}, frozenset({"flights"}))
    group = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec())
    said = follows_lag(group, found, decide(scaling(), demand_of(found), 1, None, 0.0), "2026-01-01T00:00:00Z")
    assert (said.reason, said.message) == (
        "FollowsLag",
        "topics whose lag is ignored, because no member reads them: old",
    )


def test_without_members_the_lag_of_every_committed_topic_counts() -> None:
    found = seen({("flights", 0): 0, ("old", 0): 1}, None)
    assert Story(scaling(least=0), 0).look(demand_of(found)).replicas == 1


def test_one_unread_record_scales_a_group_up_from_zero() -> None:
    decided = Story(scaling(least=0), 0).look(demand(1))
    assert (decided.replicas, decided.why) == (1, "the lag is 1, and lagThreshold is 1,000 per replica")
    assert Story(scaling(least=0), 0).look(demand(4001)).replicas == 5
    assert Story(scaling(least=0), 0).for_seconds(HOUR_S, 0).replicas == 0


def test_a_group_without_committed_offsets_gets_one_replica() -> None:
    decided = Story(scaling(least=0), 0).look(demand(None, partitions=0))
    assert (decided.replicas, decided.why) == (
        1,
        "the group has no committed offsets, so its lag is unknown until a consumer commits",
    )
    assert Story(scaling(least=0), 3).for_seconds(HOUR_S, None).replicas == 3


def test_replicas_do_not_rise_above_the_partitions_and_the_reason_is_reported() -> None:
    decided = Story(scaling(), 2).look(demand(9000, partitions=3))
    told = "the group's topics have 3 partitions, so more consumers would have nothing to read"
    assert (decided.replicas, decided.capped) == (3, told)
    assert decided.why == f"the lag is 9,000, and lagThreshold is 1,000 per replica; {told}"
    assert Story(scaling(), 2).look(demand(2900, partitions=3)).capped == ""
    assert Story(scaling(least=5), 2).look(demand(9000, partitions=3)).replicas == 5, "the declared minimum holds"


def test_replicas_above_the_partitions_are_removed_after_five_minutes_despite_the_lag() -> None:
    story = Story(scaling(), 12).looks(demand(9000 + 100 * n, partitions=8) for n in range(30))
    assert [replicas for _, replicas, _ in story.changes] == [8]


def test_declared_bounds_apply_at_once() -> None:
    low = Story(scaling(least=3), 1).look(demand(0))
    assert (low.replicas, low.why) == (3, "spec.scaling.min is 3")
    high = Story(scaling(most=4), 9).look(demand(9000))
    assert (high.replicas, high.why) == (4, "spec.scaling.max is 4")


def test_time_without_looks_does_not_count_as_time_without_lag() -> None:
    story = Story(scaling(), 6).for_seconds(WINDOW_S, 0)
    story.now_s += HOUR_S
    assert story.look(demand(0)).replicas == 6


def test_partitions_without_an_answer_of_their_leader_do_not_count_as_read() -> None:
    story = Story(scaling(), 6).for_seconds(WINDOW_S, 100)
    assert story.look(demand(50, places=6)).replicas == 6


def test_a_change_of_replicas_by_others_restarts_the_five_minutes() -> None:
    story = Story(scaling(), 3).for_seconds(WINDOW_S, 0)
    story.replicas = 8
    assert story.look(demand(0)).replicas == 8


def test_fewer_replicas_are_tried_again_only_after_a_growing_delay() -> None:
    story = Story(scaling(), 4)
    story.look(demand(5000))
    assert story.replicas == 5
    story.for_seconds(HOLD_MIN_S - POLL_S, 0)
    assert story.changes[1:] == []
    story.for_seconds(POLL_S * 2, 0)
    assert [replicas for _, replicas, _ in story.changes] == [5, 4]
    story.look(demand(0))
    story.look(demand(4600))
    before_s = story.now_s
    story.for_seconds(HOUR_S, 0)
    assert [replicas for _, replicas, _ in story.changes[:4]] == [5, 4, 5, 4]
    assert 2 * HOLD_MIN_S <= story.changes[3][0] - before_s <= 2 * HOLD_MIN_S + POLL_S


class Load(NamedTuple):
    """The records written per second, those that a replica reads per second, and the seconds of a rebalance."""

    rate: float
    capacity: float
    rebalance_s: float
    noise: float


class Life:
    """A closed loop: each decision changes the lag of the next look."""

    def __init__(self, chance: random.Random, threshold: int = 1000) -> None:
        self.story = Story(scaling(threshold=threshold), 1)
        self.chance = chance
        self.lag = self.written = self.stopped_s = 0.0

    def hours(self, load: Load, hours: float) -> None:
        for _ in range(int(hours * HOUR_S / (2 * POLL_S))):
            self.look(load, 2 * POLL_S)

    def look(self, load: Load, poll_s: float) -> None:
        come = load.rate * poll_s * (1 + load.noise * (2 * self.chance.random() - 1))
        before = self.story.replicas
        self.lag = max(0.0, self.lag + come - before * load.capacity * (poll_s - self.stopped_s))
        self.written += come
        after = self.story.look(demand(int(self.lag), written=int(self.written)), poll_s).replicas
        self.stopped_s = load.rebalance_s if after != before else 0.0


@settings(max_examples=25)
@given(
    whole=st.integers(0, 10),
    part=st.floats(0.1, 0.9),
    capacity=st.floats(1, 2000),
    threshold=st.integers(10, 100_000),
    rebalance_s=st.floats(0, 20),
    noise=st.floats(0, 0.2),
    seed=st.integers(0, 2**32),
)
def test_a_steady_load_does_not_make_replicas_flap(
    whole: int, part: float, capacity: float, threshold: int, rebalance_s: float, noise: float, seed: int
) -> None:
    """The load is not a whole number of replicas: if they can just read what is written, the lag is not steady."""
    life = Life(random.Random(seed), threshold)
    load = Load((whole + part) * capacity, capacity, rebalance_s, noise)
    life.hours(load, 4)
    settled = len(life.story.changes)
    life.hours(load, 12)
    assert len(life.story.changes) - settled <= CHANGES_MAX, life.story.changes[settled:]


def test_replicas_are_halved_soon_after_the_load_is_halved() -> None:
    life = Life(random.Random(1))
    life.hours(Load(790, 100, 5, 0.1), 16)
    assert life.story.replicas >= 8
    life.hours(Load(390, 100, 5, 0.1), 1)
    assert life.story.replicas in {4, 5}


@settings(max_examples=size(40, 1_000))
@given(
    lag=st.integers(0, 20_000),
    noise=st.floats(0, 0.09),
    replicas=st.integers(0, 20),
    seed=st.integers(0, 2**32),
)
@example(lag=950, noise=0.078125, replicas=0, seed=0)
def test_replicas_do_not_rise_after_they_have_settled_under_a_steady_lag(
    lag: int, noise: float, replicas: int, seed: int
) -> None:
    """They may fall: five minutes in which noise keeps the lag below the threshold may come late."""
    story, chance = Story(scaling(), replicas), random.Random(seed)

    def seen() -> Demand:
        return demand(int(lag * (1 + noise * (2 * chance.random() - 1))))

    story.looks(seen() for _ in range(int(2 * HOUR_S / POLL_S)))
    settled, before = len(story.changes), story.replicas
    story.looks(seen() for _ in range(int(4 * HOUR_S / POLL_S)))
    numbers = [before, *(number for _, number, _ in story.changes[settled:])]
    assert numbers == sorted(numbers, reverse=True), story.changes[settled:]


@settings(max_examples=size(60, 2_000))
@given(
    looks=st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 10**6)), st.integers(0, 3), st.integers(0, 40)), max_size=200
    ),
    least=st.integers(0, 5),
    above=st.integers(0, 20),
    replicas=st.integers(0, 50),
)
def test_replicas_are_always_within_their_bounds(
    looks: list[tuple[int | None, int, int]], least: int, above: int, replicas: int
) -> None:
    declared = scaling(least=least, most=max(1, least + above))
    story = Story(declared, replicas)
    silent_s = 0.0
    for lag, written, partitions in looks:
        before = story.replicas
        after = story.look(demand(lag, written=written, partitions=partitions)).replicas
        assert declared.min <= after <= declared.max
        if after > max(before, declared.min) and partitions:
            assert after <= partitions
        silent_s = silent_s + POLL_S if lag == 0 else 0.0
        if after == 0 < before <= declared.max:
            assert declared.min == 0
            assert silent_s >= WINDOW_S


def test_scaling_without_a_threshold_raises_an_error() -> None:
    with pytest.raises(ValueError, match=r"^spec.scaling.lagThreshold is missing"):
        decide(Scaling(target=TARGET), demand(1), 1, None, 0.0)
