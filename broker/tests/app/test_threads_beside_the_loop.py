"""Threads that run Python, such as one that unpacks a large batch, do not hold the loop up for long."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from barnabas_broker.app.loop_time import interrupt_threads_soon
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
    """It never waits. The number says how far it is."""
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


def test_a_busy_thread_lets_the_loop_go_on_sooner_after_a_system_call_than_by_pythons_own_interval() -> None:
    """Only calls count during which the thread got on: then it holds the interpreter until it is interrupted."""
    interrupt_threads_soon()
    shortest_s, until_s = 1.0, time.monotonic() + PATIENCE_S
    with busy_thread() as steps:
        while shortest_s >= CALL_S + PYTHONS_OWN_S and time.monotonic() < until_s:
            began_s, step = time.monotonic(), steps[0]
            time.sleep(CALL_S)
            if steps[0] > step:
                shortest_s = min(shortest_s, time.monotonic() - began_s)
    assert shortest_s < CALL_S + PYTHONS_OWN_S
