"""Appends with acks=all are answered in the order of their offsets, when the high watermark is past them."""

import tracemalloc
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.replication.partition import LOST_LEADERSHIP, CommitQueue
from barnabas_core.errors import ApiError
from harness.manual_timers import ManualTimers


class Answers(list[tuple[int, ApiError | None]]):
    """The answers in order, each with the number of its append."""

    def to(self, number: int) -> Callable[[ApiError | None], object]:
        return lambda error: self.append((number, error))


def test_a_committed_append_is_answered_after_the_turn() -> None:
    turns, answers = ManualTimers(), Answers()
    queue = CommitQueue(turns)
    queue.wait(5, answers.to(5))
    queue.committed(5)
    assert answers == []
    assert not queue.waiting
    turns.turn()
    assert answers == [(5, None)]


def test_an_append_above_the_high_watermark_keeps_waiting() -> None:
    turns, answers = ManualTimers(), Answers()
    queue = CommitQueue(turns)
    for end_offset in (3, 5, 9):
        queue.wait(end_offset, answers.to(end_offset))
    queue.committed(5)
    turns.turn()
    assert answers == [(3, None), (5, None)]
    assert queue.waiting


def test_lost_leadership_fails_all_appends_that_were_not_committed_before() -> None:
    turns, answers = ManualTimers(), Answers()
    queue = CommitQueue(turns)
    queue.wait(3, answers.to(3))
    queue.wait(5, answers.to(5))
    queue.committed(4)
    queue.fail(LOST_LEADERSHIP)
    queue.committed(9)
    turns.turn()
    assert answers == [(3, None), (5, LOST_LEADERSHIP)]


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 25)))
def test_each_committed_append_is_answered_once_and_in_order(waiting: list[int], high_watermarks: list[int]) -> None:
    turns, answers = ManualTimers(), Answers()
    queue = CommitQueue(turns)
    for end_offset in waiting:
        queue.wait(end_offset, answers.to(end_offset))
    for high_watermark in sorted(high_watermarks):
        queue.committed(high_watermark)
        turns.turn()
        assert all(end_offset <= high_watermark for end_offset, _ in answers)
    reached = max(high_watermarks, default=-1)
    assert [end_offset for end_offset, _ in answers] == sorted(each for each in waiting if each <= reached)


def test_a_queue_in_which_nothing_has_waited_takes_little_memory() -> None:
    turns = ManualTimers()
    tracemalloc.start()
    try:
        queues = [CommitQueue(turns) for _ in range(1_000)]
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes / len(queues) < 200
