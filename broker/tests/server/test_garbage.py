"""The objects that the garbage collector looks at, and when."""

import gc
from collections.abc import Iterator
from functools import partial

import pytest

from barnabas_broker.app.loop_turns import FREEZE_S, GARBAGE, OLDEST, Collections, LoopTurns, freeze
from barnabas_core.loop_turns import LONGEST_PART, timed


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time, in a list; the collector has the CPU all along. Frozen objects are unfrozen at the end."""
    now_s = [100.0]
    monkeypatch.setattr(LONGEST_PART, "now_s", lambda: now_s[0])
    monkeypatch.setattr(LONGEST_PART, "seconds", 0.0)
    for clock in ("perf_counter", "thread_time"):
        monkeypatch.setattr(f"barnabas_broker.app.loop_turns.{clock}", lambda: now_s[0])
    monkeypatch.setattr(gc, "callbacks", [])
    gc.unfreeze()
    yield now_s
    gc.unfreeze()


def collect(collections: Collections, now_s: list[float], generation: int, seconds: float) -> None:
    collections("start", {"generation": generation})
    now_s[0] += seconds
    collections("stop", {"generation": generation})


@pytest.mark.parametrize(
    ("generation", "seconds", "freezes"),
    [(OLDEST, FREEZE_S * 1.1, True), (OLDEST, FREEZE_S * 0.9, False), (OLDEST - 1, FREEZE_S * 9, False)],
)
def test_objects_that_a_long_full_collection_leaves_are_frozen(
    now_s: list[float], generation: int, seconds: float, *, freezes: bool
) -> None:
    collect(Collections(), now_s, generation, seconds)
    assert (gc.get_freeze_count() > 0) is freezes


def test_a_turn_with_a_long_full_collection_is_named_after_the_collection(now_s: list[float]) -> None:
    turns, callbacks = LoopTurns(), gc.callbacks
    turns.measure_parts()
    (collections,) = callbacks
    assert isinstance(collections, Collections)
    timed("making of partitions")(partial(collect, collections, now_s, OLDEST, 0.3))()
    turns.ended(0.3, now_s[0])
    now_s[0] += 1
    timed("making of partitions")(lambda: now_s.__setitem__(0, now_s[0] + 0.2))()
    turns.ended(0.2, now_s[0])
    assert [turn.what for turn in turns._longest] == [GARBAGE, "making of partitions"]


def test_freezing_leaves_hardly_any_objects_for_the_next_full_collection() -> None:
    thresholds = gc.get_threshold()
    try:
        freeze()
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects(OLDEST)) < 1_000
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
