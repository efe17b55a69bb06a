"""Times of records, estimated from log ends over time and from questions, compared with the true times."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from barnabas_lag.evaluation.history import ASKED_GAP, GAP_MIN_S, KEPT_GAP, POINTS_MAX, Found, Timeline

QUESTIONS_MAX = 40
gaps = st.lists(st.floats(0.0, 5_000.0), min_size=1, max_size=200)


def times(between: list[float]) -> list[float]:
    """Return the time when each record of a log was written."""
    written, now = [], 1_000_000.0
    for gap in between:
        now += gap
        written.append(now)
    return written


def ask(timeline: Timeline, written: list[float], offset: int, now_s: float) -> int:
    """Answer the timeline's questions until it asks none, and return their number."""
    for count in range(QUESTIONS_MAX):
        asked_s = timeline.question(offset, now_s)
        if asked_s is None:
            return count
        index = bisect_left(written, asked_s)
        timeline.answered(offset, asked_s, Found(index, written[index]) if index < len(written) else None)
    raise AssertionError(f"still asks after {QUESTIONS_MAX} questions")


@given(gaps, st.data())
def test_a_bounded_number_of_questions_finds_when_a_record_was_written(
    between: list[float], data: st.DataObject
) -> None:
    written = times(between)
    now_s = written[-1] + data.draw(st.floats(0.0, 10_000.0))
    offset = data.draw(st.integers(0, len(written) - 1))
    timeline = Timeline()
    timeline.add(now_s, len(written))
    ask(timeline, written, offset, now_s)
    told = timeline.written_s(offset)
    assert told is not None
    error_max = max(GAP_MIN_S, ASKED_GAP * (now_s - min(told, written[offset])))
    assert abs(told - written[offset]) <= error_max + 0.001


@given(gaps, st.integers(1, 20))
def test_looks_alone_give_the_time_of_a_record_within_one_interval(between: list[float], every: int) -> None:
    written = times(between)
    timeline = Timeline()
    for end in range(0, len(written) + 1, every):
        timeline.add(written[end - 1] if end else 999_999.0, end)
    for offset in range(len(written) // every * every):
        first = offset // every * every
        low = written[first - 1] if first else 999_999.0
        told = timeline.written_s(offset)
        assert told is not None
        assert low - 0.001 <= told <= written[first + every - 1] + 0.001


@given(st.lists(st.tuples(st.floats(0.0, 1_000.0), st.integers(0, 300)), min_size=1, max_size=300))
def test_a_timeline_stays_ordered_and_bounded_for_any_looks(looks: list[tuple[float, int]]) -> None:
    timeline, now_s = Timeline(), 1_000_000.0
    for passed_s, end in looks:
        now_s += passed_s
        timeline.add(now_s, end)
        told = [each for offset in range(end) if (each := timeline.written_s(offset)) is not None]
        assert told == sorted(told)
        assert all(each <= now_s for each in told)
        assert len(timeline) <= POINTS_MAX
        assert timeline.written_s(end) is None


def test_a_timeline_of_a_week_has_errors_that_are_small_for_the_age_of_records() -> None:
    timeline, every_s = Timeline(), 30.0
    for number in range(7 * 24 * 120):
        timeline.add(number * every_s, number)
    now_s, end = number * every_s, number
    for back in (1, 2, 10, 100, 1_000):
        told = timeline.written_s(end - back)
        assert told is not None
        assert abs(told - (now_s - back * every_s)) <= KEPT_GAP * back * every_s


@given(st.floats(0.0, 600.0))
def test_questions_find_the_time_of_a_record_that_arrived_between_two_looks(written_s: float) -> None:
    timeline = Timeline()
    for now_s in (0.0, 100.0):
        timeline.add(1_000_000.0 + now_s, 5)
    timeline.add(1_000_700.0, 6)
    written = [*[999_999.0] * 5, 1_000_100.0 + written_s]
    ask(timeline, written, 5, 1_000_700.0)
    told = timeline.written_s(5)
    assert told is not None
    assert abs(told - written[5]) <= max(GAP_MIN_S, ASKED_GAP * (1_000_700.0 - told))


def test_one_question_is_enough_if_it_finds_the_record_itself() -> None:
    timeline = Timeline()
    timeline.add(1_000_000.0, 5)
    timeline.add(1_000_100.0, 6)
    timeline.answered(5, 1_000_050.0, Found(5, 1_000_090.0))
    assert timeline.question(5, 1_000_100.0) is None
    assert timeline.written_s(5) == 1_000_090.0


def test_a_pause_in_writing_does_not_make_the_next_record_older() -> None:
    timeline = Timeline()
    for now_s in (0.0, 10.0, 20.0, 3_600.0):
        timeline.add(now_s, 5)
    timeline.add(3_610.0, 15)
    told = timeline.written_s(5)
    assert told is not None
    assert told >= 3_600.0
    assert len(timeline) == 3, "of a time without writes only the two ends are kept"


def test_a_timeline_forgets_the_records_that_a_truncated_log_lost() -> None:
    timeline = Timeline()
    timeline.add(0.0, 10)
    timeline.add(100.0, 50)
    timeline.add(200.0, 20)
    timeline.add(300.0, 60)
    told = timeline.written_s(30)
    assert told is not None
    assert 200.0 <= told <= 300.0


def test_records_without_timestamps_are_as_old_as_the_first_look() -> None:
    timeline = Timeline()
    timeline.add(100.0, 50)
    assert timeline.question(7, 100.0) == 0.0
    timeline.answered(7, 0.0, None)
    assert timeline.question(7, 100.0) is None
    assert timeline.written_s(7) == 100.0


@given(st.lists(st.integers(0, 100), max_size=QUESTIONS_MAX * 2), st.integers(0, 99))
def test_questions_end_even_if_the_answers_contradict_each_other(answers: list[int], offset: int) -> None:
    timeline, now_s = Timeline(), 1_000_000.0
    timeline.add(now_s, 100)
    for answer in (*answers, *[offset] * QUESTIONS_MAX):
        asked_s = timeline.question(offset, now_s)
        if asked_s is None:
            break
        timeline.answered(offset, asked_s, Found(answer, float(answer * 12_345 % 2_000_000)))
    assert timeline.question(offset, now_s) is None
    told = timeline.written_s(offset)
    assert told is not None
    assert told <= now_s
