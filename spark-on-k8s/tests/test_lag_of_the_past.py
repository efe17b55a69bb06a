"""The decoding of records of `__consumer_offsets`, and a group's lag at moments in the past. No Spark runs here."""

import random
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.lag import (
    COMMIT,
    GROUP,
    GROUPS_DRAWN,
    MALFORMED,
    TOMBSTONE,
    UNKNOWN,
    Day,
    Ends,
    GroupLag,
    Lag,
    Moment,
    Now,
    Objective,
    OffsetRecord,
    TopicHour,
    decode,
    drawn,
    findings_of,
    groups,
    lag_page,
    lags,
)

FLIGHTS = TopicPartition("flights", 0)


def string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


KEY = struct.pack(">h", 1) + string("readers") + string("flights") + struct.pack(">i", 3)
SAID = OffsetRecord(COMMIT, "readers", "flights", 3, 42, 1_357_000_000_000)
TIME = struct.pack(">q", 1_357_000_000_000)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (KEY, struct.pack(">hq", 0, 42) + string("") + TIME, SAID),
        (KEY, struct.pack(">hq", 1, 42) + string("meta") + TIME + struct.pack(">q", 9), SAID),
        (KEY, struct.pack(">hq", 2, 42) + string("Zürich") + TIME, SAID),
        (KEY, struct.pack(">hqi", 3, 42, 7) + string("") + TIME, SAID),
        (KEY, struct.pack(">hqi", 4, 42, 7) + b"\x05meta" + TIME + b"\0", SAID),
        (KEY, struct.pack(">hqi", 4, 42, 7) + b"\x01" + TIME + b"\x01\x00\x10" + bytes(16), SAID),
        (b"\0\0" + KEY[2:], struct.pack(">hq", 0, 42) + string("") + TIME, SAID),
        (KEY, None, OffsetRecord(TOMBSTONE, "readers", "flights", 3)),
        (struct.pack(">h", 2) + string("readers"), b"\0\3...", OffsetRecord(GROUP, "readers")),
        (struct.pack(">h", 2) + string("readers"), None, OffsetRecord(GROUP, "readers")),
        (struct.pack(">h", 3) + string("readers"), b"\0\0", OffsetRecord(UNKNOWN)),
        (KEY, struct.pack(">hq", 5, 42), OffsetRecord(UNKNOWN)),
        (KEY, struct.pack(">hq", 3, 42)[:7], OffsetRecord(MALFORMED)),
        (KEY, struct.pack(">hqi", 3, 42, 7) + string("") + struct.pack(">q", -1), OffsetRecord(MALFORMED)),
        (KEY, struct.pack(">hq", 0, 42) + string("") + struct.pack(">q", 2**63 - 1), OffsetRecord(MALFORMED)),
        (KEY, struct.pack(">hqi", 4, 42, 7) + b"\1" + struct.pack(">q", 253_402_300_800_000), OffsetRecord(MALFORMED)),
        (KEY[:-1], None, OffsetRecord(MALFORMED)),
        (struct.pack(">hh", 1, 900) + b"short", None, OffsetRecord(MALFORMED)),
        (struct.pack(">hh", 0, 0), bytes(6), OffsetRecord(MALFORMED)),  # The marker of an aborted transaction.
        (struct.pack(">hh", 0, 1), bytes(6), OffsetRecord(MALFORMED)),
        (b"\0", None, OffsetRecord(MALFORMED)),
        (None, b"value", OffsetRecord(MALFORMED)),
    ],
)
def test_records_of_every_version_are_decoded_and_others_are_unknown_or_malformed(
    key: bytes | None, value: bytes | None, expected: OffsetRecord
) -> None:
    assert decode(key, value) == expected


class Written:
    """A log whose records have these timestamps; it answers as a leader does."""

    def __init__(self, times_ms: Sequence[int], start: int = 0) -> None:
        self.times_ms = times_ms
        self.ends = {FLIGHTS: Ends(start, len(times_ms))}
        self.rounds = 0

    def ask(self, questions: Sequence[tuple[TopicPartition, int]]) -> list[int | None]:
        self.rounds += 1
        found = [bisect_left(self.times_ms, time_ms, self.ends[FLIGHTS].start) for _, time_ms in questions]
        return [None if offset == len(self.times_ms) else offset for offset in found]

    def lags(self, *moments: tuple[int, int]) -> list[Lag | None]:
        return lags([Moment(FLIGHTS, *each) for each in moments], self.ends, self.ask)


def test_lag_is_the_records_written_and_not_committed_at_a_moment() -> None:
    log = Written([1000 * number for number in range(100)])
    found = log.lags((10, 9_500), (10, 20_000), (100, 99_000), (100, 1_000_000), (0, 50_000))
    assert [each and each.records for each in found] == [0, 11, 0, 0, 51]
    assert [each and each.seconds for each in found] == [
        0.0,
        pytest.approx(10.0, rel=0.06),
        0.0,
        0.0,
        pytest.approx(50.0, rel=0.06),
    ]


def test_lag_is_unknown_if_the_records_or_the_topic_were_deleted() -> None:
    """Records up to offset 50 are deleted, so the log end at 20 s is unknown, and the log end at 60 s is known."""
    log = Written([1000 * number for number in range(100)], start=50)
    assert log.lags((10, 20_000)) == [None]
    assert log.lags((10, 60_000)) == [Lag(51, None)]
    assert lags([Moment(TopicPartition("gone", 0), 5, 1000)], log.ends, log.ask) == [None]


def test_lag_is_unknown_if_the_committed_offset_is_beyond_the_log_end() -> None:
    """The topic was deleted and created again, so the lag in the old log is unknown."""
    log = Written([1000 * number for number in range(100)])
    assert log.lags((101, 99_000), (500, 20_000)) == [None, None]


def test_lag_is_right_for_random_logs() -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    for _ in range(200):
        times_ms = sorted(chance.randrange(10**9, 10**9 + chance.choice([10**3, 10**6, 10**9])) for _ in range(50))
        log = Written(times_ms)
        committed, now_ms = chance.randrange(50), chance.randrange(times_ms[0], times_ms[-1] + 10**6)
        (found,) = log.lags((committed, now_ms))
        records = max(0, bisect_right(times_ms, now_ms) - committed)
        age_s = (now_ms - times_ms[committed]) / 1000 if records else 0.0
        told = f"seed {seed}: offset {committed} at {now_ms} of {times_ms}"
        assert found is not None, told
        assert found.records == records, told
        assert found.seconds == pytest.approx(age_s, rel=0.06, abs=0.11), told
        assert log.rounds < 60, told


def test_lags_at_many_moments_take_no_more_requests_than_one() -> None:
    log = Written([1000 * number for number in range(1000)])
    log.lags(*((number, 900_000) for number in range(500)))
    assert log.rounds < 40


def test_a_group_misses_its_objective_at_a_commit_or_now() -> None:
    objective = Objective(max_records=10)
    days = {"readers": [Day("1970-01-01", 8, 11, 2.0, 1), Day("1970-01-02", 4, None, None, 0)]}
    hours = [TopicHour(group="readers", topic="flights", start_ms=0, lag_max=18)]
    stopped = [
        Now(group="stopped", topic="flights", partition=number, committed=1, commit_ms=0, lag=9, seconds=number)
        for number in range(2)
    ]
    readers, other = groups(days, stopped, objective)
    assert (readers.kept, readers.missed, readers.commits, readers.lag_max) == (False, 1, 12, 11)
    assert [(each.day, each.lag_max, each.missed) for each in readers.days] == [
        ("1970-01-01", 11, 1),
        ("1970-01-02", None, 0),
    ]
    assert (other.kept, other.lag_now, other.missed, other.commits) == (False, 18, 1, 0)
    assert [each.kept for each in groups(days, [], Objective())] == [None]
    missed = "missed the objective (at most 10 records behind) 1 times"
    assert findings_of([readers, other], objective) == [
        (
            f"group readers {missed}: the group was at worst 11 records and 2.0 seconds behind at a commit, and is an "
            "unknown number of records behind now"
        ),
        (
            f"group stopped {missed}: the group was at worst an unknown number of records behind at a commit, and is "
            "18 records and 1,000 ms behind now"
        ),
    ]
    page = lag_page("About it.", [readers, other], hours, objective, "Two groups.")
    assert "at most 10 records behind" in page
    assert page.index("About it.") < page.index("group readers missed") < page.index("Two groups.")
    assert "http" not in page


@pytest.mark.parametrize(
    ("objective", "records", "seconds", "missed"),
    [
        (Objective(max_records=5), 5, 1000.0, False),
        (Objective(max_records=5), 6, 0.0, True),
        (Objective(max_seconds=1.5), 600, 1.5, False),
        (Objective(max_seconds=1.5), 1, 1.6, True),
        (Objective(max_records=5, max_seconds=1.5), None, None, False),
        (Objective(), 10**9, 10.0**9, False),
    ],
)
def test_an_objective_is_missed_beyond_its_bound(
    objective: Objective, records: int | None, seconds: float | None, missed: bool
) -> None:
    assert objective.is_missed(records, seconds) is missed


def lagging(number: int) -> GroupLag:
    """Return a group's lag; of two groups with the same number of misses, the later one was further behind."""
    return GroupLag(
        group=f"group-{number:02}",
        commits=1,
        lag_max=number,
        seconds_max=None,
        lag_now=None,
        seconds_now=None,
        missed=number % 2,
        kept=None,
        days=[],
    )


def test_the_page_draws_the_worst_groups_and_names_its_bound() -> None:
    found = [lagging(number) for number in range(2 * GROUPS_DRAWN + 2)]
    odd = [each.group for each in found if each.missed]
    assert drawn(found) == odd[: -GROUPS_DRAWN - 1 : -1]
    hours = [TopicHour(group=name, topic="flights", start_ms=0, lag_max=1) for name in drawn(found)]
    page = lag_page("About it.", found, hours, Objective(), "Many groups.")
    assert f"Charts show at most {GROUPS_DRAWN} groups" in page
    assert page.count("<svg") == GROUPS_DRAWN
    assert "group-00: largest lag by hour: not drawn" in page
