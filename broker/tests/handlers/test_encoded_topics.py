"""Metadata of many partitions is encoded once, in slices, and again when a topic changes."""

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
from barnabas_broker.handlers.large_responses import NOT_ASKED, EncodedTopics, Form, LargeResponses, SharedTurn
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.encoder import decode_response, encode_response
from barnabas_broker.wire.messages import MetadataRequest, MetadataResponse
from barnabas_core.loop_turns import ENCODED_PARTITIONS

VERSION = 12
MANY = 5 * ENCODED_PARTITIONS
CLIENTS = 20


def topic(name: str, partitions: int, leader: int = 1) -> TopicDocument:
    state = PartitionState((1, 2), leader, 3, (1,))
    return TopicDocument(name, UUID(int=len(name)), (state,) * partitions, {})


class World:
    """The parts of a broker that Metadata uses."""

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
            nodes=lambda listener_name, with_departed: [],
            config=SimpleNamespace(auto_create_topics_enable=False),
            answers=LargeResponses(SlowClock(), LoopTimers()),
            metadata_answers=LargeResponses(SlowClock(), LoopTimers()),
        )

    def show(self, document: TopicDocument) -> None:
        self.image.topics[document.name] = document

    def begin(self, version: int = VERSION, **request: Any) -> MetadataResponse | Awaitable[MetadataResponse]:
        context = RequestContext(3, version, Client("PLAINTEXT", "127.0.0.1:5", "a test"))
        return metadata.metadata(self.handler_environment, context, MetadataRequest(**{"topics": None, **request}))

    async def ask(self, version: int = VERSION, **request: Any) -> Any:
        response: Any = self.begin(version, **request)
        answer = await response if isawaitable(response) else response
        frame = encode_response(answer, version, 1)
        return decode_response("MetadataResponse", version, memoryview(frame)[4:])


async def test_a_topic_is_encoded_once_for_each_form_of_the_response() -> None:
    world = World(topic("a", 10), topic("bb", 20))
    first = await world.ask()
    assert [(each.name, len(each.partitions)) for each in first.topics] == [("a", 10), ("bb", 20)]
    assert world.told.partitions_encoded == 30
    assert await world.ask() == first
    assert world.told.partitions_encoded == 30
    assert (await world.ask(9)).topics[1].partitions[19].replica_nodes == [1, 2]
    asked = await world.ask(include_topic_authorized_operations=True)
    assert asked.topics[0].authorized_operations != first.topics[0].authorized_operations


async def test_a_topic_that_a_request_repeats_is_returned_once_as_by_kafka() -> None:
    """Otherwise a small request for one large topic could cause a response of any size."""
    world = World(topic("a", 10), topic("bb", 20))
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("bb", "a", "bb", "gone", "a", "gone")]
    answer = await world.ask(topics=wanted)
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("bb", 20), ("a", 10), ("gone", 0)]


async def test_a_change_of_topics_or_live_brokers_is_in_the_next_response() -> None:
    world = World(topic("a", 10), topic("bb", 20))
    await world.ask()
    world.show(topic("a", 10, leader=2))
    assert {each.leader_id for each in (await world.ask()).topics[0].partitions} == {-1}
    assert world.told.partitions_encoded == 40
    world.image.live = frozenset({1, 2})
    assert {each.leader_id for each in (await world.ask()).topics[0].partitions} == {2}


async def test_many_partitions_are_encoded_in_one_slice_per_turn() -> None:
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
    """Return the largest number of partitions that are encoded in one turn, until all clients have a response."""
    answering = [asyncio.ensure_future(each) for each in clients]
    before = most = 0
    while not all(each.done() for each in answering):
        await asyncio.sleep(0)
        most, before = max(most, world.told.partitions_encoded - before), world.told.partitions_encoded
        world.show(after_a_turn)
    return most


async def test_concurrent_requests_for_a_changed_topic_share_the_encoding() -> None:
    document = topic("a", MANY)
    world = World(document)
    clients = [cast("Awaitable[MetadataResponse]", world.begin()) for _ in range(CLIENTS)]
    assert await _longest_turn(world, *clients, after_a_turn=document) <= ENCODED_PARTITIONS
    assert world.told.partitions_encoded == MANY


async def _only_wait(turn: SharedTurn) -> None:
    while True:
        await turn.give_way()


async def _turns_beside(others: int) -> int:
    """Return the turns of the loop until the metadata of a large topic is ready, beside other long responses."""
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


async def test_metadata_does_not_wait_for_other_long_responses() -> None:
    """After a failover all clients need metadata, whatever else some of them request."""
    assert await _turns_beside(CLIENTS) <= 2 * await _turns_beside(0)


async def test_a_large_topic_changed_during_its_encoding_is_returned_in_its_old_state() -> None:
    """The next response has the change: starting again might never end, and one long turn would block the loop."""
    world = World(topic("a", MANY))
    client = cast("Awaitable[MetadataResponse]", world.begin())
    assert await _longest_turn(world, client, after_a_turn=topic("a", MANY, leader=2)) <= ENCODED_PARTITIONS
    answer = await world.ask()
    assert len(answer.topics[0].partitions) == MANY
    assert {each.leader_id for each in answer.topics[0].partitions} == {-1}


async def _leaders_told(world: World, *changed: TopicDocument, others_ask: bool = False) -> dict[str, set[int]]:
    """Return the leaders of each topic in a response. `changed` take effect while the last topic is being encoded."""
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


async def test_a_response_uses_a_newer_state_that_was_encoded_for_another_client() -> None:
    """That costs nothing, and the client asks because the previous leaders are outdated."""
    world = World(topic("a", MANY), topic("bb", MANY))
    told = await _leaders_told(world, topic("a", MANY, leader=2), others_ask=True)
    assert told == {"a": {-1}, "bb": {1}}


async def test_a_topic_changed_before_its_turn_is_returned_from_the_cache() -> None:
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


async def test_a_response_in_progress_does_not_replace_a_newer_cached_state() -> None:
    world = World(topic("a", MANY), topic("bb", MANY))
    changed = topic("bb", MANY, leader=2)
    assert (await _leaders_told(world, changed, others_ask=True))["bb"] == {-1}
    assert world.told.find(changed, Form(VERSION, NOT_ASKED, world.image.live))


async def test_a_broker_that_dies_during_a_response_leads_no_topic_encoded_after_that() -> None:
    world = World(topic("a", MANY), topic("bb", 5))
    world.image.live = frozenset({1, 2})
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    while world.told.partitions_encoded <= MANY:
        await asyncio.sleep(0)
    world.image.live = frozenset({2})
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    assert {each.leader_id for each in answer.topics[1].partitions} == {-1}


async def test_only_one_slice_of_small_changed_topics_is_returned_in_its_new_state() -> None:
    sizes = {"a": MANY, "bb": 5, "ccc": ENCODED_PARTITIONS - 5, "dddd": 1}
    world = World(*[topic(name, partitions) for name, partitions in sizes.items()], topic("eeeee", MANY))
    told = await _leaders_told(world, *[topic(name, partitions, leader=2) for name, partitions in sizes.items()])
    assert told == {"a": {1}, "bb": {-1}, "ccc": {-1}, "dddd": {1}, "eeeee": {1}}


async def test_topics_changed_or_deleted_during_a_response_are_returned_in_their_new_state() -> None:
    world = World(topic("a", MANY), topic("bb", 5))
    answering = asyncio.ensure_future(cast("Awaitable[MetadataResponse]", world.begin()))
    await asyncio.sleep(0)
    world.show(topic("bb", 6))
    del world.image.topics["a"]
    frame = encode_response(await answering, VERSION, 1)
    answer: Any = decode_response("MetadataResponse", VERSION, memoryview(frame)[4:])
    assert [(each.name, len(each.partitions)) for each in answer.topics] == [("bb", 6)]


def test_the_cache_of_encoded_topics_is_bounded() -> None:
    told, form = EncodedTopics(10_000), Form(VERSION, NOT_ASKED, frozenset({1}))
    for number in range(100):
        told.encode(topic(f"topic-{number}", 20), form)
        assert told.bytes_kept <= 10_000
    assert told.find(topic("topic-0", 20), form) is None
