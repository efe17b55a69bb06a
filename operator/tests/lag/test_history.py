"""Evaluations of groups over several rounds: what is reported, kept and forgotten."""

from math import inf, isfinite
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.history import Found, History
from barnabas_lag.evaluation.lags import Evaluation, GroupReading, PartitionReading, Readings, Status

FLIGHTS = TopicPartition("flights", 0)
EVERY_S = 30.0
START_S = 1_000_000.0


def readings(oldest: int | None, end: int | None, committed: int, members: int = 1) -> Readings:
    group = GroupReading("Stable" if members else "Empty", members, {FLIGHTS: committed})
    return Readings(1, {FLIGHTS: PartitionReading(0, (0,), (0,), oldest, end)}, {"billing": group})


def made_anew(before: Readings) -> Readings:
    """Return readings in which the topic was deleted and created again with another id."""
    part = before.partitions[FLIGHTS]._replace(topic_id=UUID(int=2))
    return before._replace(partitions={FLIGHTS: part})


def played(*looks: Readings) -> Evaluation:
    """Return the evaluation after the last of these rounds, which are half a minute apart."""
    history = History(2 * EVERY_S)
    for number, each in enumerate(looks):
        history.add(each, START_S + number * EVERY_S)
    return history.evaluate(START_S + (len(looks) - 1) * EVERY_S)


def test_a_group_that_has_read_everything_is_zero_seconds_behind() -> None:
    told = played(readings(0, 100, 100)).groups["billing"]
    part, topic = told.partitions[FLIGHTS], told.topics["flights"]
    assert (part.lag, part.seconds, part.retention_percent, part.lead) == (0, 0.0, 0.0, 100)
    assert (topic.lag, topic.velocity, topic.catch_up_s, topic.status) == (0, 0.0, 0.0, Status.OK)


def test_the_lag_in_seconds_counts_from_the_write_of_the_next_record() -> None:
    told = played(*(readings(0, 100 * n, 150) for n in range(1, 6))).groups["billing"]
    assert told.partitions[FLIGHTS].seconds == 3.5 * EVERY_S


def test_a_growing_lag_has_an_infinite_catch_up_time() -> None:
    topic = played(*(readings(0, 100 * n, 0) for n in range(1, 6))).groups["billing"].topics["flights"]
    assert (topic.velocity, topic.catch_up_s) == (100 / EVERY_S, inf)


def test_the_catch_up_time_of_a_shrinking_lag_follows_its_velocity() -> None:
    topic = played(*(readings(0, 1_000, 100 * n) for n in range(6))).groups["billing"].topics["flights"]
    assert (topic.lag, topic.velocity) == (500, -100 / EVERY_S)
    assert topic.catch_up_s == 150.0


def test_unread_records_that_were_deleted_give_a_negative_lead_and_full_retention() -> None:
    part = played(readings(60, 100, 50)).groups["billing"].partitions[FLIGHTS]
    assert (part.lag, part.lead, part.retention_percent) == (50, -10, 100.0)


def test_a_partition_without_a_leader_has_no_lag_and_keeps_its_history() -> None:
    history = History(2 * EVERY_S)
    for number, end in enumerate((100, 200, None, None, 300, 300, 300)):
        history.add(readings(0, end, 50), START_S + number * EVERY_S)
        told = history.evaluate(START_S + number * EVERY_S).groups["billing"]
        assert (FLIGHTS in told.partitions) == (end is not None)
    assert told.partitions[FLIGHTS].status == Status.STALL


STUCK = readings(0, 100, 50)


@pytest.mark.parametrize(
    "silence",
    [None, readings(0, None, 50), STUCK._replace(groups={}, silent=frozenset({"billing"}))],
    ids=["the cluster", "the partition's leader", "the group's coordinator"],
)
def test_unanswered_hours_count_neither_as_progress_nor_as_time_without_it(silence: Readings | None) -> None:
    history, told = History(2 * EVERY_S), []
    for at_s in (0.0, 30.0, 3_600.0, 3_630.0, 3_660.0, 9_000.0):
        if at_s in (3_600.0, 9_000.0) and silence is None:
            history.unheard()
        elif at_s in (3_600.0, 9_000.0) and silence is not None:
            history.add(silence, START_S + at_s - 900.0)
        history.add(STUCK, START_S + at_s)
        told.append(history.evaluate(START_S + at_s).groups["billing"].partitions[FLIGHTS].status)
    assert told == [*[Status.OK] * 4, Status.STALL, Status.STALL]


def test_a_rewound_partition_does_not_hide_a_stalled_one() -> None:
    stuck, history = TopicPartition("flights", 1), History(2 * EVERY_S)
    for number, committed in enumerate((400, 100, 110, 120, 130)):
        look = readings(0, 500, committed)
        parts = {**look.partitions, stuck: look.partitions[FLIGHTS]}
        groups = {"billing": look.groups["billing"]._replace(committed={FLIGHTS: committed, stuck: 50})}
        history.add(look._replace(partitions=parts, groups=groups), START_S + number * EVERY_S)
    told = history.evaluate(START_S + 4 * EVERY_S).groups["billing"]
    assert [told.partitions[each].status for each in (FLIGHTS, stuck)] == [Status.REWIND, Status.STALL]
    assert told.topics["flights"].status == Status.STALL


def test_a_missing_group_is_forgotten_after_one_round_but_not_an_unanswered_one() -> None:
    stuck, nothing = readings(0, 100, 50), readings(0, 100, 50)._replace(groups={})
    silent = nothing._replace(silent=frozenset({"billing"}))
    assert "billing" not in played(stuck, nothing).groups
    assert "billing" not in played(stuck, silent).groups
    for between, expected in (
        (nothing, Status.OK),
        (silent, Status.STALL),
        (nothing._replace(is_complete=False), Status.STALL),
    ):
        told = played(stuck, stuck, stuck, between, stuck, stuck).groups["billing"]
        assert told.partitions[FLIGHTS].status == expected


def test_offsets_of_a_deleted_topic_are_not_reported() -> None:
    gone = readings(0, 100, 50)._replace(partitions={})
    told = played(readings(0, 100, 50), gone).groups["billing"]
    assert (told.partitions, told.topics) == ({}, {})


def test_the_age_of_records_from_before_the_first_look_is_found_by_queries_for_times() -> None:
    history = History(2 * EVERY_S)
    history.add(readings(10, 1_000, 400), START_S)
    part = history.evaluate(START_S).groups["billing"].partitions[FLIGHTS]
    assert part.seconds is None
    for _ in range(20):
        for partition, question in history.questions(START_S).items():
            offset = max(10, int(1_000 - (START_S - question.time_s)))  # One record a second.
            history.answered(partition, question, Found(offset, START_S - (1_000 - offset)))
    assert history.questions(START_S) == {}
    seconds = history.evaluate(START_S).groups["billing"].partitions[FLIGHTS].seconds
    assert seconds is not None
    assert abs(seconds - 600) <= 30


def test_a_recreated_topic_shares_no_history_with_the_deleted_one() -> None:
    day = [readings(0, 100 * number, 100 * number) for number in range(1, 100)]
    again = made_anew(readings(0, 500, 100))
    told = played(*day, again).groups["billing"]
    assert told.partitions[FLIGHTS].seconds is None, "not interpolated from points of the topic before"
    assert told.partitions[FLIGHTS].status == Status.OK, "no rewind"
    assert told.topics["flights"].velocity == 0.0


def test_a_recreated_topic_is_recognised_even_if_the_group_was_silent_meanwhile() -> None:
    stuck, again = readings(0, 100, 50), made_anew(readings(0, 100, 40))
    for between in (again, readings(0, 100, 50)._replace(partitions={})):
        silent = between._replace(groups={}, silent=frozenset({"billing"}))
        told = played(stuck, stuck, stuck, silent, again).groups["billing"]
        assert told.partitions[FLIGHTS].status == Status.OK


def test_a_group_is_zero_seconds_behind_if_all_unread_records_were_deleted() -> None:
    part = played(readings(60, 60, 50)).groups["billing"].partitions[FLIGHTS]
    assert (part.lag, part.lead, part.seconds) == (10, -10, 0.0)


def test_a_partition_without_a_commit_counts_from_its_log_start_if_the_group_reads_the_topic() -> None:
    empty, unread = TopicPartition("flights", 1), TopicPartition("flights", 2)
    foreign = TopicPartition("weather", 0)
    look = readings(0, 100, 90)
    ends = {empty: (7, 7), unread: (1_000, 6_000), foreign: (0, 5_000)}
    parts = {each: PartitionReading(0, (0,), (0,), *both) for each, both in ends.items()}
    told = played(*[look._replace(partitions={**look.partitions, **parts})] * 4).groups["billing"]
    assert {each.partition: part.lag for each, part in told.partitions.items()} == {0: 10, 1: 0, 2: 5_000}
    part, topic = told.partitions[unread], told.topics["flights"]
    assert (part.committed, part.lead, part.retention_percent, part.status) == (None, 0, 100.0, Status.OK)
    assert (topic.lag, topic.lag_max, topic.committed, topic.status) == (5_010, 5_000, 90, Status.STALL)


numbers = st.one_of(st.none(), st.integers(0, 1_000))


@given(st.lists(st.tuples(numbers, numbers, st.integers(0, 1_000), st.integers(0, 2)), min_size=1, max_size=30))
def test_reported_numbers_are_valid_for_any_readings(looks: list[tuple[int | None, int | None, int, int]]) -> None:
    told = played(*(readings(*each) for each in looks)).groups["billing"]
    for part in told.partitions.values():
        assert part.lag >= 0
        assert part.seconds is None or (isfinite(part.seconds) and part.seconds >= 0)
        assert 0 <= part.retention_percent <= 100
        assert (part.seconds == 0) >= (part.lag == 0)
    for topic in told.topics.values():
        assert topic.catch_up_s >= 0
        assert topic.lag == sum(part.lag for part in told.partitions.values())
