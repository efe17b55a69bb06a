"""Requests that wait are tried after a change, once a turn, and expire when their time is up."""

from dataclasses import dataclass

from barnabas_broker.replication.leader_replica import Purgatory, WaitList
from harness.manual_timers import ManualTimers


@dataclass
class Wanting:
    """An operation that completes once `ready`, and counts its tries and expirations."""

    ready: bool = False
    tries: int = 0
    expired: int = 0

    def try_complete(self, changed: WaitList) -> bool:
        self.tries += 1
        return self.ready

    def expire(self) -> None:
        self.expired += 1


def test_an_operation_is_tried_once_a_turn_however_many_changes_there_were() -> None:
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    place, waiting = purgatory.wait_list(), Wanting()
    purgatory.watch(waiting, [place], 10)
    for _ in range(5):
        place.mark()
    assert waiting.tries == 0
    timers.pass_time(0)
    assert waiting.tries == 1


def test_a_completed_operation_leaves_all_its_places_and_never_expires() -> None:
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    busy, idle = purgatory.wait_list(), purgatory.wait_list()
    waiting = Wanting(ready=True)
    purgatory.watch(waiting, [busy, idle], 10)
    busy.mark()
    timers.pass_time(0)
    timers.pass_time(60)
    assert (waiting.tries, waiting.expired, bool(idle.waiting)) == (1, 0, False)


def test_an_operation_that_waits_at_two_changed_places_is_answered_once() -> None:
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    places = [purgatory.wait_list(), purgatory.wait_list()]
    waiting = Wanting(ready=True)
    purgatory.watch(waiting, places, 10)
    for place in places:
        place.mark()
    timers.pass_time(0)
    assert waiting.tries == 1


def test_an_operation_expires_once_when_its_time_is_up() -> None:
    timers = ManualTimers()
    purgatory = Purgatory(timers)
    place, waiting = purgatory.wait_list(), Wanting()
    purgatory.watch(waiting, [place], 0.5)
    timers.pass_time(0.4)
    assert waiting.expired == 0
    timers.pass_time(0.2)
    place.mark()
    timers.pass_time(60)
    assert (waiting.expired, waiting.tries, bool(place.waiting)) == (1, 0, False)
