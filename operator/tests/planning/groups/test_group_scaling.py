"""How many replicas run a group's consumers: at once up, later down, within bounds, and without flapping."""

import random
from collections.abc import Iterable
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag
from barnabas_lag.evaluation.progress import Status
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.groups.scaling import WINDOW_S, Decision, Demand, Memory, decide
from barnabas_operator.planning.groups.scaling_conditions import demand_of, follows_lag
from barnabas_operator.planning.groups.too_few import HOLD_MIN_S
from barnabas_operator.resources.consumer_group import ConsumerGroup, ConsumerGroupSpec, ScaleTarget, Scaling
from barnabas_operator.resources.object_meta import ObjectMeta
from harness.soak import size

LOOK_S = 15.0
HOUR_S = 3600.0
CHANGES_MAX = 36
"""In twelve hours of a load that is as hard as can be found; taken by chance half have 6 at most."""
TARGET = ScaleTarget(name="billing")


def scaling(least: int = 1, most: int = 12, threshold: int = 1000) -> Scaling:
    return Scaling(target=TARGET, lag_threshold=threshold, min=least, max=most)


def demand(
    lag: int | None, *, written: int = 0, partitions: int = 12, places: int = 12, is_all_read: bool | None = None
) -> Demand:
    return Demand(lag, written, places, partitions, is_all_read=lag == 0 if is_all_read is None else is_all_read)


def seen(lags: dict[tuple[str, int], int], topics_read: frozenset[str] | None = None, **partitions: int) -> GroupSeen:
    """The lag of some partitions, by topic and number; `partitions` of each topic."""
    found = {
        TopicPartition(*where): PartitionLag(10, 10 + lag, lag, 10, 0.0, 0.0, Status.OK) for where, lag in lags.items()
    }
    counts = partitions or {topic: 1 for topic, _ in lags}
    return GroupSeen(state="Stable", lags=GroupLags(1, found, {}), partition_counts=counts, topics_read=topics_read)


class Story:
    """Looks at one group, each `LOOK_S` after the one before; the target does as it is told."""

    def __init__(self, declared: Scaling, replicas: int) -> None:
        self.declared = declared
        self.replicas = replicas
        self.now_s = 1000.0
        self.memory: Memory | None = None
        self.changes: list[tuple[float, int, str]] = []

    def look(self, seen: Demand, after_s: float = LOOK_S) -> Decision:
        self.now_s += after_s
        decided = decide(self.declared, seen, self.replicas, self.memory, self.now_s)
        if decided.replicas != self.replicas:
            self.changes.append((self.now_s, decided.replicas, decided.why))
        else:
            assert decided.why == "", "nothing is said where nothing is done"
        self.replicas, self.memory = decided.replicas, decided.memory
        return decided

    def looks(self, seen: Iterable[Demand]) -> "Story":
        for each in seen:
            self.look(each)
        return self

    def for_seconds(self, seconds: float, lag: int | None, *, written: int = 0) -> "Story":
        return self.looks([demand(lag, written=written)] * int(seconds / LOOK_S))


def test_it_goes_up_at_once_to_what_the_lag_asks_for() -> None:
    decided = Story(scaling(), 2).look(demand(4800))
    assert (decided.replicas, decided.why) == (5, "the lag is 4,800, and lagThreshold is 1,000 per replica")


def test_a_little_more_lag_than_its_replicas_are_for_is_nothing_to_act_upon() -> None:
    assert Story(scaling(), 5).look(demand(5500)).replicas == 5
    assert Story(scaling(), 5).look(demand(5501)).replicas == 6


def test_consumers_have_time_to_join_before_more_come() -> None:
    story = Story(scaling(), 1)
    assert story.look(demand(3000)).replicas == 3
    assert story.look(demand(9000)).replicas == 3
    assert story.look(demand(9000)).replicas == 9


def test_it_goes_down_by_half_at_most_and_only_after_five_calm_minutes() -> None:
    story = Story(scaling(), 12).for_seconds(WINDOW_S, 0)
    assert story.changes == []
    story.look(demand(0))
    assert story.changes == [(story.now_s, 6, "no lag for 5 minutes")]
    story.for_seconds(HOUR_S, 0)
    assert [replicas for _, replicas, _ in story.changes] == [6, 3, 1]


def test_the_most_that_the_lag_asked_for_in_five_minutes_stays() -> None:
    story = Story(scaling(), 6)
    for _ in range(100):
        story.looks([demand(4200), demand(0), demand(0)])
    assert story.replicas == 5


def test_lag_that_grows_is_not_calm() -> None:
    story = Story(scaling(), 6).looks(demand(lag) for lag in range(0, 5000, 200))
    assert story.changes == []


def test_it_goes_to_zero_only_where_that_is_asked_for_and_nobody_writes() -> None:
    assert Story(scaling(least=1), 1).for_seconds(HOUR_S, 0).replicas == 1
    busy = Story(scaling(least=0), 1).looks(demand(0, written=n // 10) for n in range(1000))
    assert busy.replicas == 1, "all is read, and there is something to read"
    silent = Story(scaling(least=0), 1).for_seconds(WINDOW_S, 0, written=7)
    assert silent.look(demand(0, written=7)).why == "no lag for 5 minutes"
    assert silent.replicas == 0


def test_one_replica_stays_where_a_partition_has_a_record_that_is_unread_or_tells_nothing() -> None:
    read = frozenset({"flights"})
    for found in (
        seen({("flights", 0): 0}, flights=2),
        seen({("flights", 0): 0}, read, flights=1, old=1),
        seen({("flights", 0): 0, ("old", 0): 5}, read),
    ):
        story = Story(scaling(least=0), 1).looks([demand_of(found)] * int(HOUR_S / LOOK_S))
        assert story.changes == []


def test_a_topic_that_no_member_reads_any_more_asks_for_no_replicas() -> None:
    found = seen({("flights", 0): 500, ("old", 0): 90_000}, frozenset({"flights"}), flights=3, old=12)
    assert demand_of(found) == Demand(lag=500, written=510, places=1, partitions=3, is_all_read=False)
    story = Story(scaling(), 1).looks([demand_of(found)] * 100)
    assert story.changes == []


def test_topics_that_do_not_count_are_named() -> None:
    found = seen({("flights", 0): 500, ("old", 0): 90_000}, frozenset({"flights"}))
    group = ConsumerGroup(metadata=ObjectMeta(name="billing"), spec=ConsumerGroupSpec())
    said = follows_lag(group, found, decide(scaling(), demand_of(found), 1, None, 0.0), "2026-01-01T00:00:00Z")
    assert (said.reason, said.message) == (
        "FollowsLag",
        "topics whose lag is ignored, because no member reads them: old",
    )


def test_without_members_every_topic_with_a_commit_wakes_it_up() -> None:
    found = seen({("flights", 0): 0, ("old", 0): 1}, None)
    assert Story(scaling(least=0), 0).look(demand_of(found)).replicas == 1


def test_one_record_wakes_it_up() -> None:
    decided = Story(scaling(least=0), 0).look(demand(1))
    assert (decided.replicas, decided.why) == (1, "the lag is 1, and lagThreshold is 1,000 per replica")
    assert Story(scaling(least=0), 0).look(demand(4001)).replicas == 5
    assert Story(scaling(least=0), 0).for_seconds(HOUR_S, 0).replicas == 0


def test_a_group_that_has_committed_nothing_has_one_consumer_that_can() -> None:
    decided = Story(scaling(least=0), 0).look(demand(None, partitions=0))
    assert (decided.replicas, decided.why) == (
        1,
        "the group has no committed offsets, so its lag is unknown until a consumer commits",
    )
    assert Story(scaling(least=0), 3).for_seconds(HOUR_S, None).replicas == 3


def test_more_consumers_than_partitions_are_not_made_and_that_is_told() -> None:
    decided = Story(scaling(), 2).look(demand(9000, partitions=3))
    told = "the group's topics have 3 partitions, so more consumers would have nothing to read"
    assert (decided.replicas, decided.capped) == (3, told)
    assert decided.why == f"the lag is 9,000, and lagThreshold is 1,000 per replica; {told}"
    assert Story(scaling(), 2).look(demand(2900, partitions=3)).capped == ""
    assert Story(scaling(least=5), 2).look(demand(9000, partitions=3)).replicas == 5, "who says 5 gets 5"


def test_consumers_above_the_partitions_go_after_five_minutes_however_large_the_lag() -> None:
    story = Story(scaling(), 12).looks(demand(9000 + 100 * n, partitions=8) for n in range(30))
    assert [replicas for _, replicas, _ in story.changes] == [8]


def test_bounds_that_are_declared_hold_at_once() -> None:
    low = Story(scaling(least=3), 1).look(demand(0))
    assert (low.replicas, low.why) == (3, "spec.scaling.min is 3")
    high = Story(scaling(most=4), 9).look(demand(9000))
    assert (high.replicas, high.why) == (4, "spec.scaling.max is 4")


def test_time_without_looks_is_not_calm() -> None:
    story = Story(scaling(), 6).for_seconds(WINDOW_S, 0)
    story.now_s += HOUR_S
    assert story.look(demand(0)).replicas == 6


def test_partitions_whose_leaders_tell_nothing_are_not_taken_for_read() -> None:
    story = Story(scaling(), 6).for_seconds(WINDOW_S, 100)
    assert story.look(demand(50, places=6)).replicas == 6


def test_what_others_scale_is_begun_with_anew() -> None:
    story = Story(scaling(), 3).for_seconds(WINDOW_S, 0)
    story.replicas = 8
    assert story.look(demand(0)).replicas == 8


def test_where_it_did_not_keep_up_it_tries_again_only_after_a_while() -> None:
    story = Story(scaling(), 4)
    story.look(demand(5000))
    assert story.replicas == 5
    story.for_seconds(HOLD_MIN_S - LOOK_S, 0)
    assert story.changes[1:] == []
    story.for_seconds(LOOK_S * 2, 0)
    assert [replicas for _, replicas, _ in story.changes] == [5, 4]
    story.look(demand(0))
    story.look(demand(4600))
    before_s = story.now_s
    story.for_seconds(HOUR_S, 0)
    assert [replicas for _, replicas, _ in story.changes[:4]] == [5, 4, 5, 4]
    assert 2 * HOLD_MIN_S <= story.changes[3][0] - before_s <= 2 * HOLD_MIN_S + LOOK_S


class Load(NamedTuple):
    """So many records a second come, of which a replica reads so many; a rebalance stops all for some seconds."""

    rate: float
    capacity: float
    rebalance_s: float
    noise: float


class Life:
    """A real loop: what is decided changes the lag that is seen next."""

    def __init__(self, chance: random.Random, threshold: int = 1000) -> None:
        self.story = Story(scaling(threshold=threshold), 1)
        self.chance = chance
        self.lag = self.written = self.stopped_s = 0.0

    def hours(self, load: Load, hours: float) -> None:
        for _ in range(int(hours * HOUR_S / (2 * LOOK_S))):
            self.look(load, 2 * LOOK_S)

    def look(self, load: Load, look_s: float) -> None:
        come = load.rate * look_s * (1 + load.noise * (2 * self.chance.random() - 1))
        before = self.story.replicas
        self.lag = max(0.0, self.lag + come - before * load.capacity * (look_s - self.stopped_s))
        self.written += come
        after = self.story.look(demand(int(self.lag), written=int(self.written)), look_s).replicas
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
def test_a_steady_load_does_not_flap(
    whole: int, part: float, capacity: float, threshold: int, rebalance_s: float, noise: float, seed: int
) -> None:
    """With a part, for where replicas can read just as much as comes the lag wanders, and no load is steady."""
    life = Life(random.Random(seed), threshold)
    load = Load((whole + part) * capacity, capacity, rebalance_s, noise)
    life.hours(load, 4)
    settled = len(life.story.changes)
    life.hours(load, 12)
    assert len(life.story.changes) - settled <= CHANGES_MAX, life.story.changes[settled:]


def test_a_load_that_has_halved_has_half_the_replicas_soon() -> None:
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
def test_a_steady_lag_asks_for_no_more_replicas_after_it_has_settled(
    lag: int, noise: float, replicas: int, seed: int
) -> None:
    """For fewer it may: five minutes in which chance keeps it below the threshold can be long in coming."""
    story, chance = Story(scaling(), replicas), random.Random(seed)

    def seen() -> Demand:
        return demand(int(lag * (1 + noise * (2 * chance.random() - 1))))

    story.looks(seen() for _ in range(int(2 * HOUR_S / LOOK_S)))
    settled, before = len(story.changes), story.replicas
    story.looks(seen() for _ in range(int(4 * HOUR_S / LOOK_S)))
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
def test_it_is_always_within_its_bounds(
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
        silent_s = silent_s + LOOK_S if lag == 0 else 0.0
        if after == 0 < before <= declared.max:
            assert declared.min == 0
            assert silent_s >= WINDOW_S


def test_without_a_threshold_there_is_nothing_to_scale_by() -> None:
    with pytest.raises(ValueError, match=r"^spec.scaling.lagThreshold is missing"):
        decide(Scaling(target=TARGET), demand(1), 1, None, 0.0)
