"""Many deadlines of a broker share one timer of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from barnabas_broker.app.loop_turns import KEPT_MIN, LoopTimers


class CountingLoop(asyncio.SelectorEventLoop):
    """A loop that counts its timers and keeps the errors of callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.timers = 0
        self.errors: list[BaseException] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context["exception"]))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        self.timers += 1
        return super().call_at(when, callback, *args, context=context)


def called(
    begin: Callable[[LoopTimers, Callable[[str], Callable[[], object]]], object],
) -> tuple[list[str], CountingLoop]:
    """Return the notes of the callbacks up to the note `end`, and the loop."""
    loop, notes = CountingLoop(), list[str]()

    def note(text: str) -> Callable[[], object]:
        def leave() -> None:
            notes.append(text)
            if text == "end":
                loop.stop()

        return leave

    begin(LoopTimers(loop), note)
    loop.run_forever()
    loop.close()
    return notes, loop


def test_deadlines_run_in_the_order_of_their_times() -> None:
    def begin(timers: LoopTimers, note: Callable[[str], Callable[[], object]]) -> None:
        timers.call_later(0.02, note("end"))
        timers.call_later(0.01, note("second"))
        timers.call_later(0.0, note("first"))

    assert called(begin)[0] == ["first", "second", "end"]


def test_a_deadline_cancelled_by_another_of_the_same_time_does_not_run() -> None:
    def begin(timers: LoopTimers, note: Callable[[str], Callable[[], object]]) -> None:
        def cancel() -> None:
            late.cancel()

        timers.call_later(0.0, cancel)
        late = timers.call_later(0.0, note("cancelled"))
        timers.call_later(0.01, note("cancelled")).cancel()
        timers.call_later(0.02, note("end"))

    assert called(begin)[0] == ["end"]


def test_many_deadlines_need_one_timer_of_the_loop_and_cancelled_ones_are_dropped() -> None:
    def begin(timers: LoopTimers, note: Callable[[str], Callable[[], object]]) -> None:
        for _ in range(10 * KEPT_MIN):
            timers.call_later(30, note("cancelled")).cancel()
        assert len(timers._deadlines) <= KEPT_MIN
        timers.call_later(0.01, note("end"))

    notes, loop = called(begin)
    assert (notes, loop.timers) == (["end"], 2)


def test_an_error_in_one_callback_does_not_stop_the_others() -> None:
    def begin(timers: LoopTimers, note: Callable[[str], Callable[[], object]]) -> None:
        timers.call_soon(lambda: 1 / 0)
        timers.call_soon(note("soon"))
        timers.call_later(0.0, lambda: 1 / 0)
        timers.call_later(0.0, note("later"))
        timers.call_later(0.01, note("end"))

    notes, loop = called(begin)
    assert notes == ["soon", "later", "end"]
    assert [type(each) for each in loop.errors] == [ZeroDivisionError] * 2


def test_a_callback_scheduled_by_a_callback_runs_in_the_next_turn() -> None:
    def begin(timers: LoopTimers, note: Callable[[str], Callable[[], object]]) -> None:
        timers.call_soon(lambda: timers.call_soon(note("next turn")))
        timers.call_soon(note("this turn"))
        timers.call_later(0.01, note("end"))

    assert called(begin)[0] == ["this turn", "next turn", "end"]
