"""Metadata of many partitions: encoded once, in slices, and again when something about a topic changes."""

import asyncio
from collections.abc import Awaitable
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from asked_in_turns import SlowClock
from test_large_responses import LoopTimers

from barnabas_broker.handlers import metadata
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.encoded_topics import NOT_ASKED, EncodedTopics, Form
from barnabas_broker.handlers.large_responses import LargeResponses, SharedTurn
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.codec import decode_response, encode_response
from barnabas_broker.wire.messages import MetadataRequest, MetadataResponse
from barnabas_core.fair_turns import ENCODED_PARTITIONS

VERSION = 12
MANY = 5 * ENCODED_PARTITIONS
CLIENTS = 20


def topic(name: str, partitions: int, leader: int = 1) -> TopicDocument:
    state = PartitionState((1, 2), leader, 3, (1,))
    return TopicDocument(name, UUID(int=len(name)), (state,) * partitions, {})


class World:
    """As much of a broker as Metadata looks at."""

    def __init__(self, *documents: TopicDocument) -> None:
        self.told = EncodedTopics()
        self.image = SimpleNamespace(
            topics={each.name: each for each in documents},
            live=frozenset({1}),
            cluster_id="c",
            topic_name=lambda topic_id: None,
        )
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            image=self.image,
            encoded_topics=self.told,
            controller_id=1,
            nodes=lambda listener_name: [],
            config=SimpleNamespace(auto_create_topics_enable=False),
            answers=LargeResponses(SlowClock(), LoopTimers()),
            metadata_answers=LargeResponses(SlowClock(), LoopTimers()),
        )

    def show(self, document: TopicDocument) -> None:
        self.image.topics[document.name] = document

    def begin(self, version: int = VERSION, **request: Any) -> MetadataResponse | Awaitable[MetadataResponse]:
        context = RequestContext(3, version, Client("PLAINTEXT", "127.0.0.1:5", "a test"))
        return metadata.handle(self.handler_environment, context, MetadataRequest(**{"topics": None, **request}))

    async def ask(self, version: int = VERSION, **request: Any) -> Any:
        response: Any = self.begin(version, **request)
        answer = await response if isawaitable(response) else response
        frame = encode_response(answer, version, 1)
        return decode_response("MetadataResponse", version, memoryview(frame)[4:])


async def test_a_topic_is_encoded_once_for_each_form_of_the_answer() -> None:
    world = World(topic("a", 10), topic("bb", 20))
    first = await world.ask()
    assert [(each.name, len(each.partitions)) for each in first.topics] == [("a", 10), ("bb", 20)]
    assert world.told.partitions_encoded == 30
    assert await world.ask() == first
    assert world.told.partitions_encoded == 30
    assert (await world.ask(9)).topics[1].partitions[19].replica_nodes == [1, 2]
    asked = await world.ask(include_topic_authorized_operations=True)
    assert asked.topics[0].authorized_operations != first.topics[0].authorized_operations


async def test_a_topic_that_is_asked_for_again_and_again_is_told_once_as_by_kafka() -> None:
    """Otherwise a small request for one large topic would have an answer of any size."""
    world = World(topic("a", 10), topic("bb", 20))
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("bb", "a", "bb", "gone", "a", "gone")]
    answer = await world.ask(topics=wanted)
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("bb", 20), ("a", 10), ("gone", 0)]


async def test_a_change_of_a_topic_or_of_who_lives_is_told() -> None:
    world = World(topic("a", 10), topic("bb", 20))
    await world.ask()
    world.show(topic("a", 10, leader=2))
    assert {each.leader_id for each in (await world.ask()).topics[0].partitions} == {-1}
    assert world.told.partitions_encoded == 40
    world.image.live = frozenset({1, 2})
    assert {each.leader_id for each in (await world.ask()).topics[0].partitions} == {2}


async def test_many_partitions_are_encoded_a_slice_a_turn() -> None:
    world = World(topic("a", MANY), topic("bb", MANY))
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    before = most = 0
    while not answering.done():
        await asyncio.sleep(0)
        most, before = max(most, world.told.partitions_encoded - before), world.told.partitions_encoded
    assert most <= ENCODED_PARTITIONS
    assert world.told.partitions_encoded == 2 * MANY
    assert isinstance(world.begin(), MetadataResponse)
    assert len((await world.ask()).topics[1].partitions) == MANY


async def _longest_turn(world: World, *clients: Awaitable[MetadataResponse], after_a_turn: TopicDocument) -> int:
    """How many partitions are encoded in the turn with most, until all are answered."""
    answering = [asyncio.ensure_future(each) for each in clients]
    before = most = 0
    while not all(each.done() for each in answering):
        await asyncio.sleep(0)
        most, before = max(most, world.told.partitions_encoded - before), world.told.partitions_encoded
        world.show(after_a_turn)
    return most


async def test_clients_that_ask_at_once_for_a_topic_that_has_changed_share_the_work() -> None:
    document = topic("a", MANY)
    world = World(document)
    clients = [cast("Awaitable[MetadataResponse]", world.begin()) for _ in range(CLIENTS)]
    assert await _longest_turn(world, *clients, after_a_turn=document) <= ENCODED_PARTITIONS
    assert world.told.partitions_encoded == MANY


async def _only_wait(turn: SharedTurn) -> None:
    while True:
        await turn.give_way()


async def _turns_beside(others: int) -> int:
    """Of the loop, until a large topic is told while others are asked for very much of something else."""
    world = World(topic("a", MANY))
    turns = [world.handler_environment.answers.turn() for _ in range(others)]
    tasks = [asyncio.ensure_future(_only_wait(each)) for each in turns]
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    passed = 0
    while not answering.done():
        await asyncio.sleep(0)
        passed += 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return passed


async def test_metadata_does_not_wait_for_the_turns_of_other_long_answers() -> None:
    """After a failover all clients need it, whatever else some of them ask for."""
    assert await _turns_beside(CLIENTS) <= 2 * await _turns_beside(0)


async def test_a_large_topic_that_changes_while_it_is_encoded_is_told_as_it_was() -> None:
    """The next answer has the change: to begin anew might never end, to make all of it at once would hold the loop."""
    world = World(topic("a", MANY))
    client = cast("Awaitable[MetadataResponse]", world.begin())
    assert await _longest_turn(world, client, after_a_turn=topic("a", MANY, leader=2)) <= ENCODED_PARTITIONS
    answer = await world.ask()
    assert len(answer.topics[0].partitions) == MANY
    assert {each.leader_id for each in answer.topics[0].partitions} == {-1}


async def _leaders_told(world: World, *changed: TopicDocument, others_ask: bool = False) -> dict[str, set[int]]:
    """By topic, of an answer: these change once all are prepared but the last one, of which a part is."""
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    *first, last = world.image.topics.values()
    while world.told.partitions_encoded <= sum(len(each.partitions) for each in first):
        await asyncio.sleep(0)
    assert world.told.partitions_encoded < sum(len(each.partitions) for each in (*first, last))
    for document in changed:
        world.show(document)
        if others_ask:
            world.told.encode(document, Form(VERSION, NOT_ASKED, world.image.live))
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    return {each.name: {partition.leader_id for partition in each.partitions} for each in answer.topics}


async def test_a_large_topic_that_was_encoded_for_another_client_since_it_changed_is_told_as_it_is() -> None:
    """That costs nothing, and its leaders of before are those that the client asks because of."""
    world = World(topic("a", MANY), topic("bb", MANY))
    told = await _leaders_told(world, topic("a", MANY, leader=2), others_ask=True)
    assert told == {"a": {-1}, "bb": {1}}


async def test_a_topic_that_changes_before_its_turn_is_told_as_it_is_and_what_is_kept_of_it_stays() -> None:
    world = World(topic("a", MANY), topic("bb", MANY))
    world.image.live = frozenset({1, 2})
    form, changed = Form(VERSION, NOT_ASKED, world.image.live), topic("bb", MANY, leader=2)
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    while not world.told.partitions_encoded:
        await asyncio.sleep(0)
    world.show(changed)
    world.told.encode(changed, form)
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    assert {each.leader_id for each in answer.topics[1].partitions} == {2}
    assert world.told.find(changed, form)
    assert world.told.partitions_encoded == 2 * MANY


async def test_what_is_kept_of_a_topic_stays_where_an_answer_had_begun_with_what_it_was_before() -> None:
    world = World(topic("a", MANY), topic("bb", MANY))
    changed = topic("bb", MANY, leader=2)
    assert (await _leaders_told(world, changed, others_ask=True))["bb"] == {-1}
    assert world.told.find(changed, Form(VERSION, NOT_ASKED, world.image.live))


async def test_who_died_while_an_answer_was_made_leads_nothing_in_what_is_told_anew() -> None:
    world = World(topic("a", MANY), topic("bb", 5))
    world.image.live = frozenset({1, 2})
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    while world.told.partitions_encoded <= MANY:
        await asyncio.sleep(0)
    world.image.live = frozenset({2})
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    assert {each.leader_id for each in answer.topics[1].partitions} == {-1}


async def test_of_what_changes_meanwhile_a_slice_is_told_as_it_is_and_a_large_topic_takes_none_of_it() -> None:
    sizes = {"a": MANY, "bb": 5, "ccc": ENCODED_PARTITIONS - 5, "dddd": 1}
    world = World(*[topic(name, partitions) for name, partitions in sizes.items()], topic("eeeee", MANY))
    told = await _leaders_told(world, *[topic(name, partitions, leader=2) for name, partitions in sizes.items()])
    assert told == {"a": {1}, "bb": {-1}, "ccc": {-1}, "dddd": {1}, "eeeee": {1}}


async def test_what_changes_while_an_answer_is_made_is_in_it() -> None:
    world = World(topic("a", MANY), topic("bb", 5))
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    await asyncio.sleep(0)
    world.show(topic("bb", 6))
    del world.image.topics["a"]
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("bb", 6)]


def test_what_is_kept_is_bounded() -> None:
    told, form = EncodedTopics(10_000), Form(VERSION, NOT_ASKED, frozenset({1}))
    for number in range(100):
        told.encode(topic(f"topic-{number}", 20), form)
        assert told.bytes_kept <= 10_000
    assert told.find(topic("topic-0", 20), form) is None
