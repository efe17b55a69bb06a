"""A follower applies a leader's fetch response over several turns of the loop."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fetch_world import LATENCY_S, World

from barnabas_broker.replication.leader_replica import FollowerReplica
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import truncate_to


def test_a_large_fetch_response_is_applied_over_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    for index in range(8):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    happened: list[int | str] = []
    append, call_soon = FollowerReplica.append, world.timers.call_soon

    def noted(follower: FollowerReplica, *arguments: Any) -> None:
        happened.append(follower.log.topic_partition.partition)
        append(follower, *arguments)

    monkeypatch.setattr(FollowerReplica, "append", noted)

    def noted_turn(callback: Callable[[], object]) -> object:
        call_soon(partial(happened.append, "turn"))
        return call_soon(callback)

    monkeypatch.setattr(world.timers, "call_soon", noted_turn)
    for index in range(8):
        world.append(index, b"x" * 900_000)
    world.timers.pass_time(2 * LATENCY_S)
    first = happened.index(0)
    assert happened[first : first + 9] == [0, 1, 2, 3, 4, "turn", 5, 6, 7]
    assert all(world.is_equal(index) for index in range(8))


def test_truncations_after_a_failover_take_several_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, turns = World(tmp_path), dict[float, int]()
    for index in range(40):
        world.lead(index, 1)
        world.append(index)
    world.timers.pass_time(1)
    for index in range(40):  # Broker 2 leads for a moment, and writes records that nobody fetches.
        world.lead(index, 2)
        world.append(index, broker=2)
    for index in range(40):
        world.lead(index, 1)
    turn, run_later = [0], world.timers.call_later

    def truncate(log: Log, offset: int) -> None:
        turns[turn[0]] = turns.get(turn[0], 0) + 1
        world.clock.pass_time(0.001)  # One truncation takes this long.
        truncate_to(log, offset)

    def in_a_turn(delay_s: float, callback: Callable[[], object]) -> object:
        def run() -> None:
            turn[0] += 1
            callback()

        return run_later(delay_s, run)

    monkeypatch.setattr("barnabas_broker.replication.leader_replica.truncate_to", truncate)
    monkeypatch.setattr(world.timers, "call_later", in_a_turn)
    world.timers.pass_time(5)
    assert sum(turns.values()) >= 40
    assert max(turns.values()) <= 5
    assert world.is_equal(0)
