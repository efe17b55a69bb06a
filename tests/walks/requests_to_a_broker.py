"""Walks of requests to one broker that runs in this process; of several equal requests the shortest walk counts."""

import asyncio
import tempfile
from math import inf
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import CreateTopicsRequest
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest

from barnabas_broker.app.loop_turns import MeasuringSelector
from barnabas_core.loop_turns import LONGEST_PART
from bench.bytecodes import Client, create_topic, encoded, fetch_of, produce_of, started
from harness.server_process import free_port
from walks.profiled import Walk, profiled, shorter

TOPIC: Final = "flights"
REQUESTS: Final = 8
SETTLED_S: Final = 0.05
"""The time after an answer in which what the request began still counts, such as the markers of a transaction."""
SUBSCRIPTION: Final = b"\0\0\0\0\0\1\0\7flights\xff\xff\xff\xff"
ONE_REPLICA: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
COORDINATOR_LOADS: Final = frozenset({14, 15, 16, 51})
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS: ask again."""


class Walker:
    """A client whose requests are profiled, and the shortest walk of each name."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.walks: dict[str, Walk] = {}

    async def frame(self, name: str, frame: bytes) -> None:
        """Send a framed request, and keep its walk."""
        with profiled() as walk:
            await self._client.ask(frame)
            await asyncio.sleep(SETTLED_S)
        self.walks[name] = shorter(self.walks.get(name), walk)

    async def ask(self, name: str, request: Any, version: int) -> Any:
        """Send a request until its coordinator is there, keep the walk of the last one, and return the answer."""
        frame = encoded(request, version)
        while True:
            with profiled() as walk:
                answer = await self._client.ask(frame)
                await asyncio.sleep(SETTLED_S)
            decoded = request.header.get_response_class().decode(answer, header=True)
            code = getattr(decoded, "error_code", 0)
            if code not in COORDINATOR_LOADS:
                assert code in (0, 79), f"{name}: error {code}"  # 79: the group gives the member its id.
                self.walks[name] = shorter(self.walks.get(name), walk)
                return decoded


async def _walk_records(walker: Walker, topic_id: UUID) -> None:
    for _ in range(2 * REQUESTS):
        await walker.frame("Produce, acks=all", produce_of(topic_id, acks=-1))
    for _ in range(REQUESTS):
        await walker.frame("Fetch, read_committed", fetch_of(topic_id, 0, isolation_level=1))


async def _coordinator(client: Client, key_type: int, key: str) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    frame, is_found = encoded(request, 4), False
    while not is_found:
        answer = await client.ask(frame)
        (found,) = request.header.get_response_class().decode(answer, header=True).coordinators
        is_found = found.error_code == 0


def _join(group: str, member_id: str) -> JoinGroupRequest:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[protocol],
        reason=None,
    )


async def _walk_group(walker: Walker, group: str) -> None:
    named = await walker.ask("JoinGroup without a member id", _join(group, ""), 9)
    joined = await walker.ask("JoinGroup", _join(group, named.member_id), 9)
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"x")
    request = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    await walker.ask("SyncGroup of the leader", request, 5)


async def _walk_transaction(walker: Walker) -> None:
    begin = InitProducerIdRequest(
        transactional_id="t", transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    begun = await walker.ask("InitProducerId", begin, 5)
    add = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    added = await walker.ask("AddPartitionsToTxn", add, 3)
    assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, added
    end = EndTxnRequest(
        transactional_id="t", producer_id=begun.producer_id, producer_epoch=begun.producer_epoch, committed=True
    )
    await walker.ask("EndTxn, until the markers are written", end, 4)


async def _walk_creation(walker: Walker, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    await walker.ask("CreateTopics", CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=False), 7)


async def _walks(folder: Path, selector: MeasuringSelector) -> dict[str, Walk]:
    port = free_port()
    broker = await started(folder, 1, port, selector, **ONE_REPLICA)
    client = Client(port)
    walker = Walker(client)
    try:
        await _walk_records(walker, await create_topic(client, TOPIC, [1]))
        await _coordinator(client, 0, "g")
        await _coordinator(client, 1, "t")
        for number in range(REQUESTS):
            await _walk_group(walker, f"group-{number}")
            await _walk_transaction(walker)
            await _walk_creation(walker, f"topic-{number}")
        return walker.walks
    finally:
        client.close()
        await broker.stop()


def walks_of_requests() -> dict[str, Walk]:
    """Return the walk of each request by its name."""
    selector = MeasuringSelector()
    # The profiler slows all down, so no long turn is noted.
    selector.turns.noted_s = LONGEST_PART.seconds = inf
    loop = asyncio.SelectorEventLoop(selector)
    with tempfile.TemporaryDirectory() as folder:
        walks = loop.run_until_complete(_walks(Path(folder), selector))
    loop.close()
    return walks
