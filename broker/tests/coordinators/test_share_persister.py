"""The persister asks the share coordinator, on this or another broker, and tries again what may pass."""

import asyncio
from collections.abc import Callable, Coroutine
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from placed_topics import PlacedTopics
from share_state_world import GROUP, TASKS, ShareStateWorld, acknowledged, change

from barnabas_broker.coordinators.runtime.peer_requests import LinkEnvironment
from barnabas_broker.coordinators.share_state.persister import Outcomes, SharePersister
from barnabas_broker.coordinators.share_state.share_state import InitializeEntry, ReadEntry, ShareOutcome
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.table import message_handler
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import SHARE_GROUP_STATE, TopicIdPartition

OK, NOT_AVAILABLE = ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE
ALL_TRIES_S = 1 + 2 + 4 + 8
MANY = [TopicIdPartition(TASKS.topic_id, number) for number in range(700)]


class Brokers:
    """Broker 1 is the coordinator; brokers 2 and 3 send it requests."""

    def __init__(self, leader: int | None = 1) -> None:
        self.world = ShareStateWorld()
        self.requests: list[str] = []
        self.is_dead = False
        self.hangs: set[int] = set()
        self.creation_fails = False
        self.topics = PlacedTopics()
        if leader is not None:
            self.lead(leader)
        self.topics.lead("tasks", 1, topic_id=TASKS.topic_id.int)
        self._tasks: list[asyncio.Future[None]] = []
        self.links = LinkEnvironment(self, self._spawn, asyncio.timeout, self.world.clock, "test")
        self.persisters = {number: self._persister(number) for number in (1, 2, 3)}

    def _persister(self, number: int) -> SharePersister:
        timers, image = self.world.timers, self.topics.image
        return SharePersister(number, self.links, timers, image, self.world.coordinator, self._create)

    def lead(self, leader: int) -> None:
        self.topics.lead(SHARE_GROUP_STATE, leader, topic_id=1)

    async def _create(self) -> None:
        if self.creation_fails:
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 brokers are needed")
        self.lead(1)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

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
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        request = decode_request(header.api_key, header.api_version, view[header.body_start :])
        self.requests.append(type(request).__name__)
        context = RequestContext(header.api_key, header.api_version, Client("PLAINTEXT", "b2:1"))
        environment: Any = SimpleNamespace(
            authorizer=None,
            share_state=self.world.coordinator,
            answers=LargeResponses(self.world.clock, self.world.timers),
        )
        response = message_handler(header.api_key)(environment, context, request)
        response = await response if isawaitable(response) else response
        answer(memoryview(encode_response(response, header.api_version, 0))[4:])

    async def answers_of(self, start: Callable[[Callable[[Outcomes], object]], object], seconds: float = 0) -> Outcomes:
        """Return the outcomes, for which so much time may pass."""
        answers: list[Outcomes] = []
        start(answers.append)
        await self.pass_turns()
        if seconds:
            assert not answers
        for _ in range(int(seconds)):
            self.world.timers.pass_time(1)
            await self.pass_turns()
        (answer,) = answers
        return answer

    async def pass_turns(self) -> None:
        for _ in range(60):
            await asyncio.sleep(0)
            self.world.timers.pass_time()

    def begin(self, at: int, *partitions: TopicIdPartition) -> Callable[[Callable[[Outcomes], object]], object]:
        entries = [InitializeEntry(each, 3, 5) for each in partitions or (TASKS,)]
        return lambda answer: self.persisters[at].initialize(GROUP, entries, answer)


def errors(outcomes: Outcomes) -> set[ErrorCode]:
    return {each.error for each in outcomes.values()}


@pytest.mark.parametrize("at", [1, 2])
async def test_all_five_requests_have_the_outcome_of_the_coordinator_here_or_on_another_broker(at: int) -> None:
    brokers = Brokers()
    persister = brokers.persisters[at]
    assert await brokers.answers_of(brokers.begin(at)) == {TASKS: ShareOutcome()}
    entry = change(acknowledged(6, 7), start=5, complete=2, state_epoch=3)
    assert await brokers.answers_of(lambda done: persister.write(GROUP, [entry], done)) == {TASKS: ShareOutcome()}
    found = await brokers.answers_of(lambda done: persister.read(GROUP, [ReadEntry(TASKS, 2)], done))
    assert found == {TASKS: ShareOutcome(state_epoch=3, start_offset=5, batches=(acknowledged(6, 7),))}
    fenced = await brokers.answers_of(lambda done: persister.write(GROUP, [entry], done))
    assert errors(fenced) == {ErrorCode.FENCED_LEADER_EPOCH}
    summary = await brokers.answers_of(lambda done: persister.read_summary(GROUP, [ReadEntry(TASKS, -1)], done))
    expected = ShareOutcome(state_epoch=3, leader_epoch=2, start_offset=5, delivery_complete_count=2)
    assert summary == {TASKS: expected}
    assert await brokers.answers_of(lambda done: persister.delete(GROUP, [TASKS], done)) == {TASKS: ShareOutcome()}
    assert brokers.world.states == {}
    assert len(brokers.requests) == (0 if at == 1 else 6)


@pytest.mark.parametrize("at", [1, 2])
async def test_hundreds_of_share_partitions_are_asked_for_in_few_requests(at: int) -> None:
    brokers = Brokers()
    outcomes = await brokers.answers_of(brokers.begin(at, *MANY))
    assert outcomes.keys() == set(MANY)
    assert errors(outcomes) == {OK}
    assert len(brokers.requests) <= (0 if at == 1 else 5)


async def test_what_is_asked_for_a_group_in_one_turn_is_one_request() -> None:
    brokers = Brokers()
    answers: list[Outcomes] = []
    for each in MANY[:3]:
        brokers.begin(2, each)(answers.append)
    brokers.persisters[2].initialize("others", [InitializeEntry(TASKS, 1, 0)], answers.append)
    await brokers.pass_turns()
    assert len(answers) == 4
    assert len(brokers.requests) == 2


async def test_nothing_is_asked_for_no_share_partition() -> None:
    assert await Brokers().answers_of(lambda done: Brokers().persisters[2].read(GROUP, [], done)) == {}


async def test_the_first_request_creates_the_topic() -> None:
    brokers = Brokers(leader=None)
    assert errors(await brokers.answers_of(brokers.begin(2))) == {OK}


@pytest.mark.parametrize("fault", ["no topic", "no leader", "dead", "another leads", "no partition"])
async def test_a_passing_error_is_answered_after_five_tries(fault: str) -> None:
    brokers = Brokers(leader=None if fault == "no topic" else -1 if fault == "no leader" else 1)
    brokers.creation_fails = True
    brokers.is_dead = fault == "dead"
    if fault == "another leads":
        brokers.world.coordinator.runtime.resign(0)
    if fault == "no partition":
        brokers.world.unknown.add(TASKS)
    expected = {
        "dead": ErrorCode.NETWORK_EXCEPTION,
        "another leads": ErrorCode.NOT_COORDINATOR,
        "no partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    outcomes = await brokers.answers_of(brokers.begin(2), ALL_TRIES_S)
    assert errors(outcomes) == {expected.get(fault, NOT_AVAILABLE)}


async def test_a_deleted_topic_is_not_asked_for_again() -> None:
    brokers = Brokers()
    brokers.world.unknown.add(TASKS)
    brokers.topics.delete("tasks", 1, topic_id=TASKS.topic_id.int)
    assert errors(await brokers.answers_of(brokers.begin(2))) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_request_to_a_coordinator_that_hangs_goes_to_the_next_coordinator_at_once() -> None:
    brokers = Brokers(leader=2)
    brokers.hangs = {2}
    answers: list[Outcomes] = []
    brokers.begin(3)(answers.append)
    await brokers.pass_turns()
    assert answers == []
    brokers.lead(1)
    await brokers.pass_turns()
    assert [errors(each) for each in answers] == [{OK}]


async def test_a_request_that_waits_for_its_next_try_goes_to_a_new_coordinator_at_once() -> None:
    brokers = Brokers(leader=-1)
    answers: list[Outcomes] = []
    brokers.begin(2)(answers.append)
    await brokers.pass_turns()
    brokers.lead(1)
    await brokers.pass_turns()
    assert [errors(each) for each in answers] == [{OK}]


async def test_a_persister_that_is_closed_tries_nothing_again() -> None:
    brokers = Brokers(leader=-1)
    answers: list[Outcomes] = []
    brokers.begin(2)(answers.append)
    brokers.persisters[2].close()
    brokers.lead(1)
    await brokers.pass_turns()
    assert answers == []


async def test_a_group_without_a_name_and_a_topic_without_an_id_are_refused() -> None:
    brokers = Brokers()
    brokers.world.unknown.add(TopicIdPartition(UUID(int=0), 0))
    lost = await brokers.answers_of(
        lambda done: brokers.persisters[2].initialize("", [InitializeEntry(TASKS, 1, 0)], done), ALL_TRIES_S
    )
    assert errors(lost) == {ErrorCode.NETWORK_EXCEPTION}, "as in Kafka, the response has no results"
    unknown = TopicIdPartition(UUID(int=0), 0)
    assert errors(await brokers.answers_of(brokers.begin(2, unknown), ALL_TRIES_S)) == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
