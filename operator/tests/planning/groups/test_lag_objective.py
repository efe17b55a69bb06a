"""The lag objective of a group: which limit is missed, for how long, and how that is reported."""

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag, Status
from barnabas_operator.planning.groups.reset_plan import (
    NOT_FOUND,
    GroupSeen,
    Lags,
    duration_s,
    judged,
    missed_since_s,
    misses,
    shown,
)
from barnabas_operator.resources.consumer_group import LagObjective


def lags(*parts: tuple[int, float | None, float]) -> Lags:
    """Return the lags of `flights` from the lag, seconds and percent of each partition."""
    return {
        TopicPartition("flights", number): PartitionLag(0, lag, lag, 0, seconds, percent, Status.OK)
        for number, (lag, seconds, percent) in enumerate(parts)
    }


def seen(found: Lags, state: str = "Stable", topics_read: frozenset[str] | None = None) -> GroupSeen:
    return GroupSeen(state=state, lags=GroupLags(1, found, {}), topics_read=topics_read)


BEHIND = lags((4_000, 30.0, 10.0), (8_345, 61.2, 80.4))


@pytest.mark.parametrize(
    ("objective", "said"),
    [
        (
            LagObjective(max_records=10_000),
            "12,000 records are unread, most of them (8,300) at flights-1; spec.lagObjective.maxRecords allows 10,000",
        ),
        (LagObjective(max_seconds=60), "61 s behind at flights-1; spec.lagObjective.maxSeconds allows 60"),
        (
            LagObjective(max_retention_percent=50),
            "80% of the retained records are unread at flights-1; spec.lagObjective.maxRetentionPercent allows 50",
        ),
    ],
)
def test_a_miss_names_the_limit_the_actual_value_and_the_partition(objective: LagObjective, said: str) -> None:
    (miss,) = misses(objective, BEHIND)
    assert str(miss) == said


@pytest.mark.parametrize(
    "objective",
    [
        LagObjective(),
        LagObjective(max_records=12_345),
        LagObjective(max_seconds=62),
        LagObjective(max_retention_percent=81),
    ],
)
def test_a_limit_that_is_not_exceeded_is_not_missed(objective: LagObjective) -> None:
    assert misses(objective, BEHIND) == ()


def test_a_reported_value_is_never_rounded_to_an_allowed_one() -> None:
    (miss,) = misses(LagObjective(max_records=12_100), BEHIND)
    assert str(miss).startswith("12,345 records")


def test_unknown_values_miss_no_limit() -> None:
    assert misses(LagObjective(max_seconds=0), lags((5, None, 1.0))) == ()
    assert misses(LagObjective(max_records=0, max_seconds=0), lags()) == ()


def test_a_miss_is_reported_after_its_duration_until_the_objective_is_kept() -> None:
    objective = LagObjective(max_records=1, for_="1m")
    missed = misses(objective, BEHIND)
    assert judged(objective, seen(BEHIND), missed, 59.0, was_missed=False).status == "True"
    assert judged(objective, seen(BEHIND), missed, 60.0, was_missed=False).status == "False"
    assert judged(objective, seen(BEHIND), missed, 0.0, was_missed=True).status == "False"
    assert judged(objective, seen(BEHIND), (), 0.0, was_missed=True).status == "True"


def test_the_objective_of_a_missing_group_is_unknown() -> None:
    told = judged(LagObjective(max_records=1), seen(lags(), NOT_FOUND), (), 0.0, was_missed=True)
    assert told == ("Unknown", "LagUnknown", "no consumer has joined or committed yet")


def test_the_duration_of_a_miss_counts_from_its_first_look() -> None:
    missed = misses(LagObjective(max_records=1), BEHIND)
    assert missed_since_s(None, missed, 5.0) == 5.0
    assert missed_since_s(5.0, missed, 9.0) == 5.0
    assert missed_since_s(5.0, (), 9.0) is None


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0, 0), (7, 7), (99, 99), (99.6, 100), (105, 100), (12_345, 12_000), (96_000_001, 96_000_000)],
)
def test_numbers_of_a_status_are_rounded_to_two_digits(value: float, rounded: int) -> None:
    assert shown(value) == rounded


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("2m", 120), ("1h30m", 5_400), ("7d", 604_800), ("PT1H30M", 5_400), ("P1DT0.5S", 86_400.5)],
)
def test_durations_have_the_formats_of_kubernetes_and_of_kafkas_tools(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


def test_a_partition_without_a_leader_does_not_end_a_missed_objective() -> None:
    objective = LagObjective(max_records=5_000)
    known = GroupLags(1, lags((4_000, 30.0, 10.0)), {})
    away = GroupSeen(state="Stable", lags=known, silent=(TopicPartition("flights", 1),))
    missed = misses(objective, away.counted)
    told = judged(objective, away, missed, 0.0, was_missed=True)
    assert told == (
        "False",
        "LagObjectiveMissed",
        "the objective was missed, and the current lag is unknown because no leader answers for flights-1",
    )
    assert judged(objective, away, missed, 0.0, was_missed=False).status == "True"
    assert judged(objective, seen(known.partitions), missed, 0.0, was_missed=True).status == "True"


def test_a_topic_that_no_member_reads_any_more_misses_no_limit_and_is_named() -> None:
    objective = LagObjective(max_records=5_000)
    old = {TopicPartition("old", 0): PartitionLag(0, 9_000, 9_000, 0, 1.0, 1.0, Status.STOP)}
    found = seen({**lags((4_000, 30.0, 10.0)), **old}, topics_read=frozenset({"flights"}))
    missed = misses(objective, found.counted)
    assert judged(objective, found, missed, 0.0, was_missed=True) == (
        "True",
        "LagObjectiveKept",
        "topics whose lag is ignored, because no member reads them: old",
    )
    nobody_tells = seen(found.lags.partitions)
    assert misses(objective, nobody_tells.counted), "without members, everything that it has committed to counts"
