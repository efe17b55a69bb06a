"""A Produce with very many batches is appended in several turns of the event loop, in its place among the requests."""

from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from asked_in_turns import SlowClock
from one_replica import at_once
from producing_broker import Client, Producing, true_batch

from barnabas_broker.handlers.channel import TakesTurns
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.produce import BATCHES_AT_ONCE
from barnabas_broker.replication.partition import Partition
from barnabas_broker.security.authorizer import Audit, Authorizer
from barnabas_core.errors import ErrorCode
from harness.manual_clock import ManualClock

BATCHES = [bytes(true_batch(1))] * (BATCHES_AT_ONCE + 1)


class InTurns:
    """A connection with a request that takes turns, and its work, turn by turn."""

    def __init__(self, path: Path) -> None:
        self.broker = Producing(path)
        self.client = Client(self.broker)
        clock: Any = SlowClock()
        self.client.turn = LargeResponses(clock, self.broker.timers).turn()

    def begin(self, acks: int = 1) -> Coroutine[object, object, None]:
        self.client.begin(*BATCHES, acks=acks)
        return self.broker.spawned.pop()

    @property
    def appended(self) -> int:
        return int(self.broker.partition.log.log_end_offset)

    def take_turn(self, work: Coroutine[object, object, None]) -> bool:
        """Take one turn; return False if the work has ended."""
        with suppress(StopIteration):
            work.send(None)
            return True
        return False

    def rest_of(self, work: Coroutine[object, object, None]) -> int:
        """Take the turns that remain, also those that encode the response, and return their number."""
        turns = 1
        while self.take_turn(work):
            turns += 1
        while self.broker.spawned:
            at_once(self.broker.spawned.pop())
        return turns

    def is_muted(self) -> bool:
        return self.client.is_muted


def test_a_request_of_very_many_batches_is_not_begun_at_once(tmp_path: Path) -> None:
    broker = Producing(tmp_path)
    with pytest.raises(TakesTurns):
        Client(broker).begin(*BATCHES)
    assert broker.partition.log.log_end_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_each_turn_appends_few_batches_and_the_connection_reads_on_after_the_last(tmp_path: Path, acks: int) -> None:
    asked = InTurns(tmp_path)
    work = asked.begin(acks)
    asked.take_turn(work)
    assert 0 < asked.appended < 10
    assert asked.is_muted()
    assert asked.rest_of(work) > 100
    assert not asked.is_muted()
    assert asked.client.is_read
    assert [each.base_offset for each in asked.client.results()] == list(range(len(BATCHES)))


def test_a_request_without_a_response_is_appended_whole(tmp_path: Path) -> None:
    asked = InTurns(tmp_path)
    asked.rest_of(asked.begin(acks=0))
    assert asked.appended == len(BATCHES)
    assert asked.client.answers == []
    assert not asked.is_muted()


def test_a_request_that_times_out_says_which_batches_were_not_appended(tmp_path: Path) -> None:
    asked = InTurns(tmp_path)
    work = asked.begin()
    asked.take_turn(work)
    appended = asked.appended
    asked.broker.timers.pass_time(10)
    at_once(asked.broker.spawned.pop())
    assert asked.is_muted(), "the connection still keeps the bytes of the request, and would read them again"
    asked.rest_of(work)
    assert (asked.client.is_read, asked.is_muted()) == (True, False)
    assert asked.appended == appended
    results = asked.client.results()
    assert [each.error_code for each in results[:appended]] == [0] * appended
    assert {each.error_code for each in results[appended:]} == {ErrorCode.REQUEST_TIMED_OUT}
    assert "was not appended" in results[-1].error_message


def test_nothing_more_is_appended_after_the_connection_has_closed(tmp_path: Path) -> None:
    asked = InTurns(tmp_path)
    work = asked.begin()
    asked.take_turn(work)
    appended = asked.appended
    assert asked.client.give_up is not None
    asked.client.give_up()
    asked.rest_of(work)
    assert asked.appended == appended
    assert asked.client.answers == []


@pytest.mark.parametrize("may_write", [True, False])
def test_rights_are_checked_before_the_first_append(tmp_path: Path, may_write: bool) -> None:
    asked = InTurns(tmp_path)
    asked.broker.handler_environment.authorizer = Authorizer([], allow_if_none=may_write, audit=Audit(ManualClock()))
    asked.rest_of(asked.begin())
    expected = ErrorCode.NONE if may_write else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {each.error_code for each in asked.client.results()} == {expected}
    assert asked.appended == (len(BATCHES) if may_write else 0)


def test_a_bug_in_one_append_closes_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = InTurns(tmp_path)
    work = asked.begin()
    work.send(None)

    def buggy(partition: Partition, *arguments: Any) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(Partition, "append_as_leader", buggy)
    with pytest.raises(AssertionError, match="a bug"):
        asked.rest_of(work)
    assert asked.client.closed is not None
