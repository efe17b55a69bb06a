"""Many replicas that move between log dirs at once leave turns of the loop to clients."""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path

import pytest
from one_replica import HERE, Broker, led

from barnabas_broker.replication.fetch_session import UNLIMITED, LogMover, MoveSteps, Throttle
from barnabas_broker.storage.log_dirs.replica_moves import ReplicaMove

MANY = 20
"""Partitions: half of them are in each log dir."""
BATCHES = 30
STEPS = MoveSteps(copy_bytes=300, swap_lag_bytes=100)


class Turns:
    """The number of the current turn of the loop, and the copies and swaps of each turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0
        self.copies: Counter[int] = Counter()
        self.swaps: Counter[int] = Counter()
        for name, done in (("copy", self.copies), ("swap", self.swaps)):
            self._count(monkeypatch, name, done)

    def _count(self, monkeypatch: pytest.MonkeyPatch, name: str, done: Counter[int]) -> None:
        call = getattr(ReplicaMove, name)

        def counted(move: ReplicaMove, argument: int) -> object:
            done[self.now] += 1
            return call(move, argument)

        monkeypatch.setattr(ReplicaMove, name, counted)

    async def until_all_have_ended(self, moves: list[Coroutine[object, object, None]]) -> None:
        moving = [asyncio.ensure_future(move) for move in moves]
        while not all(move.done() for move in moving):
            await asyncio.sleep(0)
            self.now += 1
        await asyncio.gather(*moving)


async def test_only_one_of_many_moves_copies_or_swaps_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [led(HERE, 4, HERE, replicas=1) for _ in range(MANY)]
    broker = Broker(tmp_path, *states[:1])
    broker.show(*states)
    while broker.timers.turn():
        pass
    turns, other_dir, moves = Turns(monkeypatch), str(tmp_path / "more"), list[Coroutine[object, object, None]]()
    throttle = Throttle(broker.clock, lambda: UNLIMITED)
    mover = LogMover(broker.logs, broker.replicas, throttle, moves.append, asyncio.sleep, STEPS)
    partitions = list(broker.replicas.lookup.partitions())
    for each in partitions:
        broker.append(BATCHES, each)
        mover.move(each.topic_partition, other_dir)
    await turns.until_all_have_ended(moves)
    assert len(partitions) == MANY
    assert {(each.log.log_dir, each.log.log_end_offset) for each in partitions} == {(other_dir, BATCHES)}
    assert turns.swaps.total() == MANY // 2
    assert turns.copies.total() > 3 * turns.swaps.total()
    assert max(count for turn, count in turns.copies.items() if not turns.swaps[turn]) == 1
    assert max(turns.swaps.values()) == 1
