"""What comes round over all logs takes a few of them in a turn of the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import Broker, led

from barnabas_broker.app.log_chores import LogChores
from barnabas_broker.storage.log import Log
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

LOGS = 40


class WorkClock:
    """Each look at a log takes a millisecond."""

    def __init__(self) -> None:
        self.looked = 0

    def now_ms(self) -> int:
        return 0

    def monotonic_s(self) -> float:
        return self.looked / 1000


def broker_with_logs(folder: Path) -> Broker:
    broker = Broker(folder, led(1, 1, 1))
    for number in range(LOGS):
        broker.logs.create(TopicPartition("many", number), UUID(int=9), LogConfig())
    return broker


def longest_turn(clock: WorkClock, work: Callable[[], Awaitable[None]]) -> int:
    """How many logs were looked at in one turn, at most."""
    seen = [0]

    async def beside() -> None:
        while True:
            seen.append(clock.looked)
            await asyncio.sleep(0)

    async def run() -> None:
        others = asyncio.create_task(beside())
        await work()
        others.cancel()

    asyncio.run(run())
    return max(after - before for before, after in zip(seen, [*seen[1:], clock.looked], strict=True))


@pytest.mark.parametrize("chore", ["enforce_retention", "expire_producers"])
def test_a_round_over_all_logs_looks_at_a_few_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chore: str
) -> None:
    broker, clock = broker_with_logs(tmp_path), WorkClock()

    def look(_: Log, *__: object) -> None:
        clock.looked += 1

    monkeypatch.setattr(Log, chore, look)
    chores = LogChores(broker.logs, broker.replicas, clock, lambda _: None)
    assert longest_turn(clock, getattr(chores, chore)) <= 5
    assert clock.looked == LOGS + 1


def test_only_logs_that_have_something_to_sync_are_looked_at_each_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, clock = broker_with_logs(tmp_path), WorkClock()
    broker.append(3)
    rolled = broker.partition.log
    rolled.roll(0)
    timed = broker.logs.logs[TopicPartition("many", 7)]
    timed.config = LogConfig(flush_ms=1000)
    looked: list[Log] = []
    due_flush = Log.due_flush

    def look(log: Log, now_ms: int) -> object:
        looked.append(log)
        return due_flush(log, now_ms)

    monkeypatch.setattr(Log, "due_flush", look)
    chores = LogChores(broker.logs, broker.replicas, clock, lambda _: None)
    for _ in range(3):
        asyncio.run(chores.flush())
    assert rolled.recovery_point == 3
    assert looked.count(rolled) == 2
    assert looked.count(timed) == 3
    assert len(looked) == 5
