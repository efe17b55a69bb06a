"""A large request is decoded, checked, refused and encoded in small portions, and requests share a turn of the loop."""

import asyncio
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from asked_in_turns import SlowClock
from test_connection import Recorder, answer, connected, framed

from barnabas_broker.handlers.channel import TakesTurns
from barnabas_broker.handlers.guard import guarded
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.security.authorizer import Audit, Authorizer
from barnabas_broker.server.connection import TurnShare
from barnabas_broker.server.connection_bounds import BufferPool
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.wire import messages
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import LOOP_SHARE, STEP_ELEMENTS
from harness.manual_clock import ManualClock

GROUPS = 3_000
TEXTS_OF_A_GROUP = 4
STEPS_OF_A_TURN = 6
"""The steps that fit into 4 ms if each reading of the clock takes 1 ms, and two for the first turns of others."""
MEGABYTE = 1024 * 1024


class LoopTimers:
    """The timers of the running loop."""

    def call_soon(self, callback: Any) -> None:
        asyncio.get_running_loop().call_soon(callback)


def environment(*, slow: bool = False) -> Any:
    """Return what the dispatcher needs; with a `slow` clock a turn has only a few elements."""
    answers = LargeResponses(SlowClock() if slow else ManualClock(), LoopTimers())  # type: ignore[arg-type]
    authorizer = Authorizer([], allow_if_none=False, audit=Audit(ManualClock()))
    quotas = SimpleNamespace(are_set=False, on_change=None)
    return SimpleNamespace(answers=answers, quotas=quotas, authorizer=authorizer)


def describe(names: list[str]) -> bytes:
    return bytes(encode_request(messages.DescribeGroupsRequest(groups=names), 5, 1, "a test"))


def described(frame: bytes) -> list[tuple[str, int]]:
    groups = decode_response("DescribeGroupsResponse", 5, memoryview(frame)).groups
    return [(each.group_id, each.error_code) for each in groups]


def handle(environment: Any, context: Any, request: Any) -> Any:
    group = messages.DescribeGroupsResponse.DescribedGroup
    return messages.DescribeGroupsResponse(groups=[group(group_id=each) for each in request.groups])


NAMES = [f"group-{number}" for number in range(GROUPS)]


@pytest.mark.parametrize("kept_bytes", [64 * MEGABYTE, 1], ids=["room", "no room"])
async def test_a_large_request_is_answered_before_the_requests_behind_it(kept_bytes: int) -> None:
    pool = BufferPool(kept_bytes, asyncio.get_running_loop().call_soon)
    dispatcher = Dispatcher(environment(), {}, lambda _: handle)
    async with connected(dispatcher, pool) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(describe(["first"]) + describe(NAMES) + describe(["last"]) + describe(NAMES * 9))
        assert described(await answer(reader)) == [("first", 0)]
        assert described(await answer(reader)) == [(each, 0) for each in NAMES]
        assert described(await answer(reader)) == [("last", 0)]
        writer.close()
        assert await reader.read() is not None
    assert pool.bytes_in_use == 0


async def test_a_raw_request_that_takes_turns_comes_again_before_the_requests_behind_it() -> None:
    came: list[bool] = []

    def in_turns(environment: Any, channel: Any, version: int, correlation_id: int, *where: Any) -> Any:
        came.append(channel.turn is not None)
        if channel.turn is None:
            raise TakesTurns(environment.answers)
        send = channel.defer()

        def answer() -> None:
            channel.request_is_read()
            send([framed(bytes(where[0][where[1] : where[2]]))])

        asyncio.get_running_loop().call_soon(answer)
        return lambda: None

    body = describe(NAMES)
    key = struct.unpack(">h", body[4:6])[0]
    pool = BufferPool(64 * MEGABYTE, asyncio.get_running_loop().call_soon)
    dispatcher = Dispatcher(environment(), {key: in_turns}, lambda _: handle)  # type: ignore[dict-item]
    async with connected(dispatcher, pool) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(body + body)
        for _ in range(2):
            assert body.endswith((await answer(reader))[4:])
        assert connection.turn is None
    assert came == [False, True] * 2
    assert dispatcher.stats[key].count == 2
    assert pool.bytes_in_use == 0


async def test_a_large_request_while_memory_is_short_is_answered() -> None:
    pool = BufferPool(MEGABYTE, asyncio.get_running_loop().call_soon)
    other = pool.acquire(2 * MEGABYTE, 2 * MEGABYTE, "another connection")
    assert other is not None
    assert pool.is_exhausted
    async with connected(Dispatcher(environment(), {}, lambda _: handle), pool) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(describe(NAMES) + describe(["last"]))
        assert len(described(await answer(reader))) == GROUPS
        assert described(await answer(reader)) == [("last", 0)]
    assert pool.bytes_in_use == len(other)


async def test_a_request_that_decoding_would_copy_for_long_closes_its_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas_broker.server.dispatch.DECODED_BYTES_MAX", 10_000)
    async with connected(Dispatcher(environment(), {}, lambda _: handle)) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(describe(NAMES[:100]) + describe(NAMES))
        assert len(described(await answer(reader))) == 100
        assert await reader.read() == b""


async def test_the_guard_refuses_each_element_of_a_large_request() -> None:
    dispatcher = Dispatcher(environment(slow=True), {}, guarded(lambda _: handle))
    async with connected(dispatcher) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(describe(NAMES))
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert described(await answer(reader)) == [(each, refused) for each in NAMES]


async def test_a_client_that_disconnects_ends_its_large_request_before_it_is_handled() -> None:
    handled: list[Any] = []
    pool = BufferPool(64 * MEGABYTE, asyncio.get_running_loop().call_soon)
    dispatcher = Dispatcher(environment(slow=True), {}, lambda _: lambda *given: handled.append(given))
    async with connected(dispatcher, pool) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(describe(NAMES))
        while not dispatcher._tasks:
            await asyncio.sleep(0)
        connection.close()
        while dispatcher._tasks:
            await asyncio.sleep(0)
    assert handled == []
    assert pool.bytes_in_use == 0


class KeptPool(BufferPool):
    """A pool that keeps all buffers."""

    def __init__(self, call_soon: Any) -> None:
        super().__init__(64 * MEGABYTE, call_soon)
        self.buffers: list[Any] = []

    def acquire(self, needed_bytes: int, have_bytes: int, owner: object, *, must: bool = False) -> Any:
        self.buffers.append(super().acquire(needed_bytes, have_bytes, owner, must=must))
        return self.buffers[-1]


async def test_the_bytes_of_a_large_request_are_free_while_its_handler_waits() -> None:
    pool = KeptPool(asyncio.get_running_loop().call_soon)

    def handler(*given: Any) -> Any:
        pool.buffers[-1].append(0)  # It fails while a memoryview of the bytes exists.
        return handle(*given)

    async with connected(Dispatcher(environment(), {}, lambda _: handler), pool) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(describe(NAMES))
        assert len(described(await answer(reader))) == GROUPS


class PerTurn:
    """Counts the calls of functions in each turn of the event loop."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._counts: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        if frame.f_code.co_name == "_run_once":
            self._end()
        elif frame.f_code.co_qualname in self._names:
            self._counts[frame.f_code.co_qualname] += 1

    def _end(self) -> None:
        self.most |= self._counts
        self._counts.clear()

    def __enter__(self) -> "PerTurn":
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._end()


async def test_no_turn_decodes_checks_refuses_or_encodes_all_elements_of_large_requests() -> None:
    """Count the calls of each turn for three requests at once; a slow clock ends a turn after a few steps."""
    dispatcher = Dispatcher(environment(slow=True), {}, guarded(lambda _: handle))
    names = ("_sized_reader.<locals>.read", "_code", "Refusals._element", "_string_writer.<locals>.write")
    frame = describe(NAMES[:800])
    async with connected(dispatcher) as first, connected(dispatcher) as second, connected(dispatcher) as third:  # type: ignore[arg-type]
        with PerTurn(*names) as counted:
            for _, _, writer in (first, second, third):
                writer.write(frame)
            for _, reader, _ in (first, second, third):
                await answer(reader)
    assert set(counted.most) == set(names)
    assert max(counted.most.values()) < TEXTS_OF_A_GROUP * STEPS_OF_A_TURN * STEP_ELEMENTS


class Outcome:
    """An outcome of an element, which counts how many outcomes are freed."""

    freed = 0

    def __del__(self) -> None:
        Outcome.freed += 1


@pytest.mark.parametrize("leave", [False, True], ids=["answered", "disconnected"])
async def test_no_turn_frees_all_elements_of_large_requests(leave: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three requests are freed at once, and a slow clock ends a turn after a few steps."""
    monkeypatch.setattr(Outcome, "freed", 0)
    turns: list[Any] = []

    def handler(environment: Any, context: Any, request: Any) -> Any:
        turns.append(context.turn)
        context.turn.keep_outcomes({each: Outcome() for each in request.groups})
        if leave:
            context.connection.close()
        return handle(environment, context, request)

    freed = [0]
    dispatcher = Dispatcher(environment(slow=True), {}, lambda _: handler)
    async with connected(dispatcher) as first, connected(dispatcher) as second, connected(dispatcher) as third:  # type: ignore[arg-type]
        for _, _, writer in (first, second, third):
            writer.write(describe(NAMES))
        while len(turns) < 3 or any(each.kept for each in turns):
            await asyncio.sleep(0)
            freed.append(Outcome.freed)
    assert freed[-1] == 3 * GROUPS
    assert max(now - before for before, now in pairwise(freed)) <= STEPS_OF_A_TURN * STEP_ELEMENTS


@pytest.fixture
def used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use up the share of each turn at once."""
    # A loop that measures its turns sets the end of the share, and needs the clock back after this test.
    monkeypatch.setattr(LOOP_SHARE, "ends_s", 0.0)
    monkeypatch.setattr(LOOP_SHARE, "now_s", time.perf_counter)


async def test_connections_that_leave_a_turn_go_on_one_by_one_in_their_order(
    used_up: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.server.connection.CONNECTION_S", 0.0)
    turns, went_on = 0, list[tuple[int, int]]()
    share = TurnShare(asyncio.get_running_loop().call_soon)

    def go_on(number: int) -> None:
        went_on.append((turns, number))

    for number in range(5):
        share.leave(partial(go_on, number))
    for turns in range(1, 8):  # noqa: B007 - read by the callbacks
        await asyncio.sleep(0)
    assert went_on == [(number + 1, number) for number in range(5)]


async def test_connections_that_leave_each_turn_again_schedule_one_turn_at_a_time(used_up: None) -> None:
    scheduled = list[Callable[[], object]]()
    share = TurnShare(scheduled.append)

    def again() -> None:
        share.leave(again)

    again()
    for _ in range(5):
        (turn,) = scheduled
        scheduled.clear()
        turn()


async def test_a_connection_whose_turn_is_used_up_is_served_in_the_next(used_up: None) -> None:
    recorder = Recorder()
    async with connected(recorder) as (_, reader, writer):
        writer.write(b"\0\0\0\1a\0\0\0\1b")
        assert [await answer(reader), await answer(reader)] == [b"a", b"b"]
    assert recorder.requests == [b"a", b"b"]
