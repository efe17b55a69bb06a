"""The lengths of turns of the loop, and the work that took longest in them."""

import logging

import pytest

from barnabas_broker.app.loop_turns import BOUNDS_S, LoopTurns, MeasuringSelector
from barnabas_broker.server.metrics.broker_families import loop_families
from barnabas_core.loop_turns import LONGEST_PART, timed


@pytest.fixture
def now_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list; this thread had the CPU for half of it."""
    now_s = [100.0]
    monkeypatch.setattr(LONGEST_PART, "now_s", lambda: now_s[0])
    monkeypatch.setattr(LONGEST_PART, "seconds", 0.0)
    monkeypatch.setattr("barnabas_broker.app.loop_turns.perf_counter", lambda: now_s[0])
    monkeypatch.setattr("barnabas_broker.app.loop_turns.thread_time", lambda: now_s[0] / 2)
    return now_s


def a_turn(turns: LoopTurns, now_s: list[float], *parts: tuple[str, float]) -> None:
    """Run a turn in which these parts take so long."""
    turns.began(now_s[0])
    began_s = now_s[0]
    for name, seconds in parts:
        timed(name)(lambda took_s: now_s.__setitem__(0, now_s[0] + took_s))(seconds)
    turns.ended(now_s[0] - began_s, now_s[0])


def test_the_longest_turn_of_the_last_minute_is_named_after_its_longest_part(now_s: list[float]) -> None:
    turns = LoopTurns()
    assert turns.longest() is None
    a_turn(turns, now_s, ("Produce", 0.01), ("retention", 0.2))
    a_turn(turns, now_s, ("Fetch", 0.05))
    longest = turns.longest()
    assert longest is not None
    assert longest.what == "retention"
    assert (longest.seconds, longest.cpu_s) == pytest.approx((0.21, 0.105))
    now_s[0] += 59.97  # The longest ended more than a minute ago now, the one after it not quite.
    longest = turns.longest()
    assert longest is not None
    assert longest.what == "Fetch"
    now_s[0] += 1
    assert turns.longest() is None


def test_a_turn_of_many_short_parts_is_named_other(now_s: list[float]) -> None:
    turns = LoopTurns()
    a_turn(turns, now_s, ("Fetch", 0.02), ("Produce", 0.02), ("Metadata", 0.02))
    longest = turns.longest()
    assert longest is not None
    assert longest.what == "other"


def test_a_turn_that_is_too_long_is_logged(now_s: list[float], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    turns = LoopTurns()
    a_turn(turns, now_s, ("checkpoints", 0.4))
    assert caplog.messages == []
    a_turn(turns, now_s, ("retention", 2.0))
    assert caplog.messages == [
        "an iteration of the event loop took 2.000 s and used 1.000 s of CPU; the longest work was: retention"
    ]


def test_a_short_turn_is_reported_as_longest_only_if_the_last_minute_had_none_longer(
    now_s: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.app.loop_turns.perf_counter", lambda: now_s[0])
    with MeasuringSelector() as selector:
        for seconds in (0.0004, 0.0003, 0.02, 0.0002):
            now_s[0] += seconds
            selector.select(0)
        assert selector.turns.counts[:5] == [3, 0, 0, 0, 1]
        assert selector.turns.total_s == pytest.approx(0.0209)
        assert length_of_longest(selector) == pytest.approx(0.02)
        now_s[0] += 61
        selector.select(0)
        now_s[0] += 61
        assert selector.turns.longest() is None
        selector._ready_s = now_s[0]
        now_s[0] += 0.0001
        selector.select(0)
        assert length_of_longest(selector) == pytest.approx(0.0001)


def length_of_longest(selector: MeasuringSelector) -> float:
    longest = selector.turns.longest()
    assert longest is not None
    return longest.seconds


def test_turns_are_counted_by_their_length(now_s: list[float]) -> None:
    turns = LoopTurns()
    for seconds in (0.0001, 0.0009, 0.02, 3.0):
        a_turn(turns, now_s, ("Fetch", seconds))
    families = {
        each.name: [sample for sample in each.samples() if sample is not None]
        for each in loop_families(BOUNDS_S, turns.counts, lambda: turns.total_s, turns.longest)
    }
    values = {f"{sample.suffix} {sample.labels}": sample.value for sample in families["barnabas_loop_turn_seconds"]}
    assert values['_bucket le="0.001"'] == 2
    assert values['_bucket le="0.025"'] == 3
    assert values['_bucket le="2.5"'] == 3
    assert values['_bucket le="+Inf"'] == values["_count "] == 4
    assert values["_sum "] == pytest.approx(3.021)
    (longest,) = families["barnabas_loop_longest_turn_seconds"]
    assert longest.labels == 'what="Fetch"'
    assert longest.value == pytest.approx(3.0)
