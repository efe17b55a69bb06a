"""DeleteRecords is answered once no broker that is alive could bring the records back."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fetch_world import LATENCY_S, World

from barnabas_broker.handlers import delete_records
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.replication.partition import Partition
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.wire.messages import DeleteRecordsRequest
from barnabas_core.errors import ErrorCode

LEADER, FOLLOWER, THIRD = 1, 2, 3
FETCH_WAIT_S = 0.5
CONTEXT = RequestContext(21, 2, Client("PLAINTEXT", "127.0.0.1:5", "client"))
TIMEOUT_S = 5

Topic = DeleteRecordsRequest.DeleteRecordsTopic


class Deleting:
    """Broker 1 leads partition 0, which has ten records."""

    def __init__(self, folder: Path, replicas: tuple[int, ...] = (LEADER, FOLLOWER)) -> None:
        self.world = World(folder)
        self.world.lead(0, LEADER, replicas=replicas)
        self.world.append(0, records=10)
        self.world.timers.pass_time(FETCH_WAIT_S + 4 * LATENCY_S)
        self.handler_environment: Any = SimpleNamespace(
            replicas=SimpleNamespace(failures=self),
            purgatory=Purgatory(self.world.timers),
            image=SimpleNamespace(live={1, 2, 3}),
        )

    @contextmanager
    def using(self, name: str, index: int) -> Iterator[Partition]:
        yield self.partition(LEADER, index)

    def partition(self, broker: int = LEADER, index: int = 0) -> Partition:
        return self.world.brokers[broker].find(None, None, index)

    def start(self, offset: int) -> Any:
        wanted = Topic.DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [Topic(name="flights", partitions=[wanted])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_S * 1000)
        return delete_records.handle(self.handler_environment, CONTEXT, request)

    async def result(self, response: Any) -> tuple[ErrorCode, int]:
        if isinstance(response, Awaitable):
            response = await response
        (result,) = response.topics[0].partitions
        return result.error_code, result.low_watermark


def test_it_waits_until_the_follower_has_deleted_the_records_too(tmp_path: Path) -> None:
    async def run() -> None:
        one = Deleting(tmp_path)
        assert one.partition(FOLLOWER).log_start_offset == 0
        response = one.start(4)
        assert isinstance(response, asyncio.Future)
        assert not response.done()
        assert one.partition().log_start_offset == 4
        began_s = one.world.clock.monotonic_s()
        while not response.done():
            waited_s = one.world.clock.monotonic_s() - began_s
            assert one.partition(FOLLOWER).log_start_offset == 0 or waited_s < TIMEOUT_S
            one.world.timers.pass_time(LATENCY_S)
        assert await one.result(response) == (ErrorCode.NONE, 4)
        assert one.partition(FOLLOWER).log_start_offset == 4
        one.world.lead(0, FOLLOWER)
        assert one.partition(FOLLOWER).log_start_offset == 4  # What was deleted does not return.

    asyncio.run(run())


@pytest.mark.parametrize("offset", [-1, 10])
def test_all_that_is_committed_can_be_deleted(tmp_path: Path, offset: int) -> None:
    async def run() -> None:
        one = Deleting(tmp_path)
        response = one.start(offset)
        one.world.timers.pass_time(2 * FETCH_WAIT_S)
        assert await one.result(response) == (ErrorCode.NONE, 10)

    asyncio.run(run())


def test_a_replica_that_is_alone_or_whose_followers_are_dead_answers_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        assert await one.result(one.start(4)) == (ErrorCode.NONE, 4)
        assert await one.result(one.start(2)) == (ErrorCode.NONE, 4)
        assert await one.result(one.start(11)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)

    one = Deleting(tmp_path / "alone", (LEADER,))
    asyncio.run(run())
    one = Deleting(tmp_path / "dead")
    one.handler_environment.image.live = {LEADER, THIRD}
    asyncio.run(run())


def test_a_follower_that_does_not_fetch_makes_it_time_out(tmp_path: Path) -> None:
    async def run() -> None:
        one = Deleting(tmp_path)
        one.world.silent.add(LEADER)
        response = one.start(4)
        one.world.timers.pass_time(TIMEOUT_S - 0.1)
        assert not response.done()
        one.world.timers.pass_time(0.2)
        assert await one.result(response) == (ErrorCode.REQUEST_TIMED_OUT, -1)

    asyncio.run(run())


def test_a_new_leader_is_the_one_to_ask_again(tmp_path: Path) -> None:
    async def run() -> None:
        one = Deleting(tmp_path)
        response = one.start(4)
        one.world.lead(0, FOLLOWER)
        one.world.timers.pass_time(LATENCY_S)
        assert await one.result(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    asyncio.run(run())


def test_a_follower_that_died_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    async def run() -> None:
        one = Deleting(tmp_path, (LEADER, FOLLOWER, THIRD))
        one.world.silent.add(LEADER)
        response = one.start(4)
        one.handler_environment.image.live = {LEADER}
        one.world.lead(0, LEADER, replicas=(LEADER, FOLLOWER, THIRD), to=(LEADER,))
        one.world.timers.pass_time(LATENCY_S)
        assert await one.result(response) == (ErrorCode.NONE, 4)

    asyncio.run(run())
