"""Threads that run Python, such as one that decompresses a large batch, do not block the event loop for long."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from barnabas_broker.app.loop_turns import interrupt_threads_soon
from harness.deadline import PATIENCE_S

PYTHONS_OWN_S = 0.005
CALL_S = 0.001


@pytest.fixture(autouse=True)
def switch_interval_is_put_back() -> Iterator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(PYTHONS_OWN_S)
    yield
    sys.setswitchinterval(before_s)


@contextmanager
def busy_thread() -> Iterator[list[int]]:
    """Run a thread that never waits; yield its count of steps."""
    ended, steps = Event(), [0]

    def work() -> None:
        while not ended.is_set():
            steps[0] += 1

    thread = Thread(target=work)
    thread.start()
    try:
        yield steps
    finally:
        ended.set()
        thread.join()


def test_a_busy_thread_yields_to_the_loop_sooner_than_after_pythons_switch_interval() -> None:
    """Only calls during which the thread made progress count: it then holds the interpreter until it is interrupted."""
    interrupt_threads_soon()
    shortest_s, until_s = 1.0, time.monotonic() + PATIENCE_S
    with busy_thread() as steps:
        while shortest_s >= CALL_S + PYTHONS_OWN_S and time.monotonic() < until_s:
            began_s, step = time.monotonic(), steps[0]
            time.sleep(CALL_S)
            if steps[0] > step:
                shortest_s = min(shortest_s, time.monotonic() - began_s)
    assert shortest_s < CALL_S + PYTHONS_OWN_S
