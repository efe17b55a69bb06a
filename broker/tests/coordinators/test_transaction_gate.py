"""The gate asks the coordinator of a transactional id, on this or another broker, once for all waiting appends."""

import asyncio
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest
from placed_topics import PlacedTopics
from transaction_world import FLIGHTS, TransactionWorld

from barnabas_broker.coordinators.runtime.peer_requests import FeatureUsers, LinkEnvironment
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.table import message_handler
from barnabas_broker.metadata.model import TRANSACTION_VERSION
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TRANSACTION_STATE, TopicPartition

WEATHER = TopicPartition("weather", 3)


class Brokers:
    """Two brokers: broker 1 is the coordinator, and broker 2 sends it requests."""

    def __init__(self, leader: int = 1) -> None:
        self.world = TransactionWorld()
        self.requests = 0
        self.is_dead = False
        self._tasks: list[asyncio.Future[None]] = []
        self.topics = PlacedTopics()
        self.topics.lead(TRANSACTION_STATE, leader, topic_id=1)
        self.topics.lead(FLIGHTS.topic, 1, topic_id=2)
        self.topics.lead(WEATHER.topic, 1, 1, 1, 1, topic_id=3)
        self.hangs: set[int] = set()
        image = self.topics.image
        links = LinkEnvironment(self, self._spawn, asyncio.timeout, self.world.timers.clock, "test")
        self.gates = {
            number: TransactionGate(number, links, image, self.world.coordinator, self._sleep) for number in (1, 2, 3)
        }
        self.feature_users = FeatureUsers(links, image)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _sleep(self, seconds: float) -> None:
        self.world.write_markers()
        await asyncio.sleep(0)

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Any:
        hang = SimpleNamespace(send=lambda frame, answer: None, close=lambda: None)
        link = SimpleNamespace(send=lambda frame, answer: self._send(frame, answer, on_closed), close=lambda: None)
        return hang if broker_id in self.hangs else link

    def _send(self, frame: bytes, answer: Callable[[memoryview], None], on_closed: Callable[[str], None]) -> None:
        if self.is_dead:
            asyncio.get_running_loop().call_soon(on_closed, "refused")
        else:
            self._spawn(self._serve(frame, answer))

    async def _serve(self, frame: bytes, answer: Callable[[memoryview], None]) -> None:
        self.requests += 1
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        request = decode_request(header.api_key, header.api_version, view[header.body_start :])
        context = RequestContext(header.api_key, header.api_version, Client("PLAINTEXT", "b2:1"))
        coordinator, clock = self.world.coordinator, self.world.timers.clock
        environment: Any = SimpleNamespace(
            authorizer=None,
            gate=self.gates[1],
            transactions=coordinator,
            clock=clock,
            answers=LargeResponses(clock, self.world.timers),
        )
        response = message_handler(header.api_key)(environment, context, request)
        response = await response if isawaitable(response) else response
        answer(memoryview(encode_response(response, header.api_version, 0))[4:])

    async def ask(self, at: int, by: ProducerEpoch, *partitions: TopicPartition, adds: bool = True) -> list[ErrorCode]:
        asked = [self.gates[at].ask("pay", by, each, adds=adds) for each in partitions]
        while not all(each.done() for each in asked):
            await asyncio.sleep(0)
            self.world.timers.pass_time()
        return [each.result() for each in asked]


@pytest.mark.parametrize("at", [1, 2])
async def test_partitions_requested_concurrently_are_added_in_one_batch(at: int) -> None:
    brokers = Brokers()
    producer = brokers.world.init().producer
    written = brokers.world.log.batches
    assert await brokers.ask(at, producer, FLIGHTS, WEATHER) == [ErrorCode.NONE] * 2
    assert brokers.world.coordinator.describe("pay").partitions == {FLIGHTS, WEATHER}
    assert brokers.world.log.batches == written + 1
    assert brokers.requests == at - 1


@pytest.mark.parametrize("at", [1, 2])
async def test_the_gate_verifies_which_partitions_are_in_the_transaction(at: int) -> None:
    brokers = Brokers()
    producer = brokers.world.begun()
    codes = await brokers.ask(at, producer, FLIGHTS, WEATHER, adds=False)
    assert codes == [ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE]


async def test_the_gate_waits_for_the_end_of_the_previous_transaction() -> None:
    brokers = Brokers()
    ended = brokers.world.end(brokers.world.begun())
    assert await brokers.ask(1, ended.producer, FLIGHTS) == [ErrorCode.NONE]


async def test_the_gate_returns_an_error_if_the_coordinator_is_unavailable() -> None:
    brokers = Brokers()
    brokers.is_dead = True
    assert await brokers.ask(2, ProducerEpoch(7, 0), FLIGHTS) == [ErrorCode.NETWORK_EXCEPTION]
    assert await Brokers(leader=-1).ask(1, ProducerEpoch(7, 0), FLIGHTS) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


async def test_a_question_to_a_coordinator_that_hangs_goes_to_the_next_coordinator_at_once() -> None:
    brokers = Brokers(leader=2)
    brokers.hangs = {2}
    producer = brokers.world.init().producer
    asked = [asyncio.ensure_future(brokers.ask(3, producer, each)) for each in (FLIGHTS, WEATHER)]
    for _ in range(10):
        await asyncio.sleep(0)
    brokers.topics.lead(TRANSACTION_STATE, 1, topic_id=1)
    assert await asyncio.gather(*asked) == [[ErrorCode.NONE], [ErrorCode.NONE]]


@pytest.mark.parametrize("leader", [1, -1])
async def test_a_question_to_a_coordinator_that_hangs_is_answered_if_this_broker_or_nobody_coordinates(
    leader: int,
) -> None:
    brokers = Brokers(leader=2)
    brokers.hangs = {2}
    producer = brokers.world.init().producer
    asked = asyncio.ensure_future(brokers.ask(1, producer, FLIGHTS))
    for _ in range(10):
        await asyncio.sleep(0)
    brokers.topics.lead(TRANSACTION_STATE, leader, topic_id=1)
    assert await asked == [ErrorCode.NONE if leader == 1 else ErrorCode.COORDINATOR_NOT_AVAILABLE]


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("adds", [True, False])
async def test_a_partition_that_the_coordinator_does_not_know_is_refused_and_others_are_not(
    at: int, adds: bool
) -> None:
    brokers = Brokers()
    producer = brokers.world.begun()
    codes = await brokers.ask(at, producer, FLIGHTS, TopicPartition("flights", 1), adds=adds)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert brokers.world.coordinator.describe("pay").partitions == {FLIGHTS}


async def test_open_transactions_are_found_until_their_markers_are_written() -> None:
    brokers = Brokers()
    producer = brokers.world.begun()
    assert await brokers.feature_users.find(TRANSACTION_VERSION) == ["pay"]
    brokers.world.end(producer)
    assert await brokers.feature_users.find(TRANSACTION_VERSION) == ["pay"], "a transaction without its markers is open"
    brokers.world.write_markers()
    assert await brokers.feature_users.find(TRANSACTION_VERSION) == []


@pytest.mark.parametrize("leader", [1, -1])
async def test_listing_open_transactions_fails_if_a_coordinator_is_unavailable(leader: int) -> None:
    brokers = Brokers(leader)
    brokers.is_dead = True
    with pytest.raises(ApiError, match="cannot list its open transactions") as refused:
        await brokers.feature_users.find(TRANSACTION_VERSION)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
