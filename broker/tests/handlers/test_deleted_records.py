"""The response to DeleteRecords waits until no live broker can restore the records."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fetch_world import LATENCY_S, World

from barnabas_broker.handlers import partition_offsets
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.encoder import decode_response, encode_response
from barnabas_broker.wire.messages import DeleteRecordsRequest
from barnabas_core.errors import ErrorCode

LEADER, FOLLOWER, THIRD = 1, 2, 3
FETCH_WAIT_S = 0.5
VERSION = 2
CONTEXT = RequestContext(21, VERSION, Client("PLAINTEXT", "127.0.0.1:5", "client"))
TIMEOUT_S = 5
TURNS = 10
MANY = 50

Topic = DeleteRecordsRequest.DeleteRecordsTopic


class Live(frozenset[int]):
    """The set of live brokers, which counts its membership tests."""

    asked = 0

    def __contains__(self, broker: object) -> bool:
        self.asked += 1
        return super().__contains__(broker)


class Deleting:
    """Broker 1 as the leader of partitions with ten records each."""

    def __init__(self, folder: Path, replicas: tuple[int, ...] = (LEADER, FOLLOWER), partitions: int = 1) -> None:
        self.world = World(folder)
        self.partitions = range(partitions)
        for number in self.partitions:
            self.world.lead(number, LEADER, replicas=replicas)
            self.world.append(number, records=10)
        self.world.timers.pass_time(FETCH_WAIT_S + 4 * LATENCY_S)
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            replicas=SimpleNamespace(failures=self),
            purgatory=Purgatory(self.world.timers),
            image=SimpleNamespace(live={1, 2, 3}),
            answers=LargeResponses(self.world.clock, self.world.timers),
        )

    @contextmanager
    def using(self, name: str, index: int) -> Iterator[Partition]:
        yield self.partition(LEADER, index)

    def partition(self, broker: int = LEADER, index: int = 0) -> Partition:
        return self.world.brokers[broker].find(None, None, index)

    async def start(self, offset: int) -> asyncio.Future[Any]:
        """Send the request, and let the broker do all work that needs no waiting."""
        wanted = [Topic.DeleteRecordsPartition(partition_index=number, offset=offset) for number in self.partitions]
        topics = [Topic(name="flights", partitions=wanted)]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=TIMEOUT_S * 1000)
        response = asyncio.ensure_future(partition_offsets.delete_records(self.handler_environment, CONTEXT, request))
        await self.turns()
        return response

    async def turns(self) -> None:
        """Run as many turns of the loop as a request of so few partitions can need."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        self.world.timers.pass_time(seconds)
        await self.turns()

    async def results(self, response: asyncio.Future[Any]) -> list[tuple[ErrorCode, int]]:
        """Return the results as the client decodes them."""
        frame = encode_response(await response, VERSION, 1)
        answer = decode_response("DeleteRecordsResponse", VERSION, memoryview(frame)[4:])
        return [(ErrorCode(each.error_code), each.low_watermark) for each in answer.topics[0].partitions]

    async def result(self, response: asyncio.Future[Any]) -> tuple[ErrorCode, int]:
        (result,) = await self.results(response)
        return result


async def test_delete_records_waits_until_the_follower_has_deleted_the_records_too(tmp_path: Path) -> None:
    one = Deleting(tmp_path)
    assert one.partition(FOLLOWER).log.log_start_offset == 0
    response = await one.start(4)
    assert not response.done()
    assert one.partition().log.log_start_offset == 4
    began_s = one.world.clock.monotonic_s()
    while not response.done():
        waited_s = one.world.clock.monotonic_s() - began_s
        assert one.partition(FOLLOWER).log.log_start_offset == 0 or waited_s < TIMEOUT_S
        await one.pass_time(LATENCY_S)
    assert await one.result(response) == (ErrorCode.NONE, 4)
    assert one.partition(FOLLOWER).log.log_start_offset == 4
    one.world.lead(0, FOLLOWER)
    assert one.partition(FOLLOWER).log.log_start_offset == 4  # The deleted records do not return.


@pytest.mark.parametrize("offset", [-1, 10])
async def test_all_committed_records_can_be_deleted(tmp_path: Path, offset: int) -> None:
    one = Deleting(tmp_path)
    response = await one.start(offset)
    await one.pass_time(2 * FETCH_WAIT_S)
    assert await one.result(response) == (ErrorCode.NONE, 10)


async def test_a_leader_without_live_followers_responds_to_delete_records_immediately(tmp_path: Path) -> None:
    alone, bereft = Deleting(tmp_path / "alone", (LEADER,)), Deleting(tmp_path / "dead")
    bereft.handler_environment.image.live = {LEADER, THIRD}
    for one in (alone, bereft):
        assert await one.result(await one.start(4)) == (ErrorCode.NONE, 4)
        assert await one.result(await one.start(2)) == (ErrorCode.NONE, 4)
        assert await one.result(await one.start(11)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_delete_records_times_out_if_a_follower_does_not_fetch(tmp_path: Path) -> None:
    one = Deleting(tmp_path)
    one.world.silent.add(LEADER)
    response = await one.start(4)
    await one.pass_time(TIMEOUT_S - 0.1)
    assert not response.done()
    await one.pass_time(0.2)
    assert await one.result(response) == (ErrorCode.REQUEST_TIMED_OUT, -1)


async def test_delete_records_fails_if_the_leader_changes(tmp_path: Path) -> None:
    one = Deleting(tmp_path)
    response = await one.start(4)
    one.world.lead(0, FOLLOWER)
    await one.pass_time(LATENCY_S)
    assert await one.result(response) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_delete_records_does_not_wait_for_a_follower_that_died(tmp_path: Path) -> None:
    one = Deleting(tmp_path, (LEADER, FOLLOWER, THIRD))
    one.world.silent.add(LEADER)
    response = await one.start(4)
    one.handler_environment.image.live = {LEADER}
    one.world.lead(0, LEADER, replicas=(LEADER, FOLLOWER, THIRD), to=(LEADER,))
    await one.pass_time(LATENCY_S)
    assert await one.result(response) == (ErrorCode.NONE, 4)


async def test_progress_of_a_follower_in_one_partition_checks_only_that_partition(tmp_path: Path) -> None:
    """With thousands of partitions, each change would otherwise cause a check of all in one turn."""
    one = Deleting(tmp_path, (LEADER, FOLLOWER, THIRD), MANY)
    live = one.handler_environment.image.live = Live({LEADER, FOLLOWER, THIRD})
    one.world.silent.add(LEADER)
    response = await one.start(4)
    for follower in (FOLLOWER, THIRD):
        assert not response.done()
        for number in one.partitions:
            one.partition(LEADER, number).fetched_by(follower, 1, 10, 4, one.world.clock.now_ms())
        await one.pass_time(LATENCY_S)
    assert await one.results(response) == [(ErrorCode.NONE, 4)] * MANY
    assert live.asked <= 10 * MANY  # Checks per partition: two followers, twice at first, and at each change.


async def test_only_the_partitions_that_wait_for_a_follower_time_out(tmp_path: Path) -> None:
    one = Deleting(tmp_path, partitions=2)
    one.world.silent.add(LEADER)
    response = await one.start(4)
    one.world.lead(1, LEADER, replicas=(LEADER,))
    await one.pass_time(TIMEOUT_S - 0.1)
    assert not response.done()
    await one.pass_time(0.2)
    assert await one.results(response) == [(ErrorCode.REQUEST_TIMED_OUT, -1), (ErrorCode.NONE, 4)]
