"""The longest time that a group without members can keep its offsets, from looks half a minute apart."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.history import History, expire_s
from barnabas_lag.evaluation.lags import GroupReading, PartitionReading, Readings

FLIGHTS, WEATHER = TopicPartition("flights", 0), TopicPartition("weather", 0)
EVERY_S = 30.0
START_S = 1_000_000.0
WEEK_S = 7 * 86_400.0
EMPTY, STABLE = GroupReading("Empty", 0, {FLIGHTS: 5}), GroupReading("Stable", 1, {FLIGHTS: 5})


def look(group: GroupReading | None, retention_s: float | None = WEEK_S) -> Readings:
    """Return readings of the group, or of a silent coordinator if the group is None."""
    partitions = {each: PartitionReading(0, (0,), (0,), 0, 9) for each in (FLIGHTS, WEATHER)}
    groups = {} if group is None else {"billing": group}
    silent = frozenset({"billing"} if group is None else ())
    return Readings(1, partitions, groups, silent, offsets_retention_s=retention_s)


def left_s(looks: Sequence[Readings]) -> float | None:
    """Return the remaining seconds after the last of these looks, or None if they are unknown."""
    history = History(2 * EVERY_S)
    for number, each in enumerate(looks):
        history.add(each, START_S + number * EVERY_S)
    return history.evaluate(START_S + (len(looks) - 1) * EVERY_S).groups["billing"].offsets_expire_s


def committed(offset: int, group: GroupReading = EMPTY) -> Readings:
    return look(group._replace(committed={FLIGHTS: offset}))


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([look(EMPTY)], WEEK_S),
        ([look(EMPTY)] * 11, WEEK_S - 10 * EVERY_S),
        ([look(STABLE)] * 5 + [look(EMPTY)] * 2, WEEK_S - EVERY_S),
        ([look(EMPTY)] * 5 + [look(STABLE), look(EMPTY)], WEEK_S),
        ([look(EMPTY)] * 5 + [committed(6)] * 3, WEEK_S - 2 * EVERY_S),
        ([look(EMPTY)] * 5 + [look(EMPTY._replace(committed={FLIGHTS: 5, WEATHER: 0}))], WEEK_S),
        ([look(EMPTY), look(None), look(None), look(EMPTY)], WEEK_S - 3 * EVERY_S),
        ([look(EMPTY, 60.0)] * 5, 0.0),
        ([look(EMPTY)] * 3 + [look(EMPTY, 90.0)], 0.0),
        ([look(STABLE)] * 3, None),
        ([look(EMPTY, None)] * 3, None),
        ([look(EMPTY, None)] * 3 + [look(EMPTY)], WEEK_S - 3 * EVERY_S),
        ([look(EMPTY._replace(committed={}))] * 3, None),
        ([look(GroupReading("PreparingRebalance", 2, {FLIGHTS: 5}))], None),
    ],
    ids=[
        "the time begins with the first look",
        "it counts down",
        "it begins when the members have left",
        "a member that came and left begins it anew",
        "a commit begins it anew",
        "a first commit to another topic begins it anew",
        "it goes on while the group is silent",
        "it ends at 0",
        "brokers with a shorter retention count",
        "a group with members keeps its offsets",
        "brokers that do not tell the retention",
        "brokers that tell the retention later",
        "nothing is committed",
        "a rebalance has members",
    ],
)
def test_the_remaining_time_of_offsets_follows_from_the_looks(
    looks: Sequence[Readings], expected: float | None
) -> None:
    assert left_s(looks) == expected


def test_offsets_of_partitions_without_a_leader_count_too() -> None:
    led = look(EMPTY)
    away = led._replace(partitions={FLIGHTS: PartitionReading(-1, (0,), ())})
    assert left_s([led, away, away]) == WEEK_S - 2 * EVERY_S
    assert left_s([away, away]) == WEEK_S - EVERY_S


def test_the_remaining_time_of_a_recreated_group_starts_again() -> None:
    gone = look(EMPTY)._replace(groups={})
    assert left_s([*[look(EMPTY)] * 5, gone, look(EMPTY)]) == WEEK_S


@given(st.floats(1.0, 1e9), st.floats(0, 1e9), st.lists(st.floats(0, 1e9)), st.floats(0, 1e9))
def test_the_remaining_time_is_between_zero_and_the_retention_for_any_clock(
    retention_s: float, since_s: float, moves_s: list[float], now_s: float
) -> None:
    assert 0 <= expire_s(retention_s, since_s, moves_s, now_s) <= retention_s
