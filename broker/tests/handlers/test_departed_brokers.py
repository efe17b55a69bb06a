"""Metadata lists a broker that died for the time of a session; nothing sends clients to it."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import msgspec

from barnabas_broker.handlers import cluster, metadata
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.handler_environment import DepartedBrokers, HandlerEnvironment
from barnabas_broker.handlers.large_responses import EncodedTopics, LargeResponses
from barnabas_broker.metadata.documents import broker_key, encode, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import BrokerRegistration, ControllerDocument, PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_broker.wire.encoder import decode_response, encode_response
from barnabas_broker.wire.messages import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest
from barnabas_core.config.listeners import Endpoint
from barnabas_core.topic_partition import CONSUMER_OFFSETS
from harness.manual_clock import ManualClock
from harness.manual_timers import ManualTimers

SESSION_MS = 9000
DEAD, ALIVE = 1, 2


class World:
    """Two brokers, of which DEAD leads all partitions and is the controller."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.image = MetadataImage()
        self.revision = 0
        self.put("controller", ControllerDocument(DEAD, 1))
        state = PartitionState((DEAD, ALIVE), DEAD, 1, (DEAD, ALIVE))
        self.put(topic_key(CONSUMER_OFFSETS), TopicDocument(CONSUMER_OFFSETS, UUID(int=7), (state,)))
        for broker in (DEAD, ALIVE):
            endpoint = Endpoint("PLAINTEXT", "localhost", 9000 + broker)
            self.put(broker_key(broker), BrokerRegistration(broker, UUID(int=broker), (endpoint,)))
        timers = ManualTimers(self.clock)
        environment: Any = HandlerEnvironment(**dict.fromkeys(HandlerEnvironment.__struct_fields__, cast("Any", None)))
        environment.broker_id, environment.image, environment.clock = ALIVE, self.image, self.clock
        environment.config = SimpleNamespace(auto_create_topics_enable=False)
        environment.authorizer = None
        environment.departed = DepartedBrokers(self.image, self.clock, SESSION_MS)
        environment.encoded_topics = EncodedTopics()
        environment.answers = environment.metadata_answers = LargeResponses(self.clock, timers)
        self.environment = cast("HandlerEnvironment", environment)
        self.context = RequestContext(3, 12, Client("PLAINTEXT", "127.0.0.1:5", "a test"))

    def put(self, key: str, document: Any) -> None:
        self.revision += 1
        change = Change(self.revision, key, encode(document))
        self.image.apply_changes(Changes(self.revision, [change]))

    def change(self, **fields: Any) -> None:
        """Change the registration of the broker DEAD."""
        self.put(broker_key(DEAD), msgspec.structs.replace(self.image.brokers[DEAD], **fields))

    def metadata(self) -> Any:
        return metadata.metadata(self.environment, self.context, MetadataRequest(topics=[]))

    def listed(self) -> list[int]:
        return [each.node_id for each in self.metadata().brokers]


def test_metadata_lists_a_broker_that_died_until_a_session_later() -> None:
    world = World()
    world.change(fenced=True)
    world.clock.pass_time(SESSION_MS / 1000 - 0.001)
    assert world.listed() == [DEAD, ALIVE]
    world.clock.pass_time(0.001)
    assert world.listed() == [ALIVE]


def test_metadata_lists_a_broker_that_restarts_within_its_session_all_the_time() -> None:
    world = World()
    world.change(fenced=True)
    world.change(broker_epoch=9, incarnation_id=UUID(int=5))  # The next incarnation registers as fenced.
    assert world.listed() == [DEAD, ALIVE]
    world.change(fenced=False)
    world.clock.pass_time(SESSION_MS)
    assert world.listed() == [DEAD, ALIVE]


def test_metadata_no_longer_lists_a_broker_that_stopped_in_order() -> None:
    world = World()
    world.change(is_shutting_down=True)
    world.change(fenced=True)
    assert world.listed() == [ALIVE]


async def test_a_broker_that_died_is_neither_coordinator_nor_controller_nor_in_describe_cluster() -> None:
    world = World()
    world.change(fenced=True)
    client = world.context.client
    request = FindCoordinatorRequest(key="g")
    assert (await cluster.find_coordinator(world.environment, RequestContext(10, 3, client), request)).node_id == -1
    described = cluster.describe_cluster(
        world.environment, RequestContext(60, 1, client), DescribeClusterRequest(endpoint_type=1)
    )
    assert [each.broker_id for each in described.brokers] == [ALIVE]
    assert world.metadata().controller_id == described.controller_id == ALIVE


def test_a_broker_that_died_leads_no_partition() -> None:
    world = World()
    world.change(fenced=True)
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=CONSUMER_OFFSETS)])
    response: Any = metadata.metadata(world.environment, world.context, request)
    shown = decode_response("MetadataResponse", 12, memoryview(encode_response(response, 12, 1))[4:])
    assert [each.leader_id for each in shown.topics[0].partitions] == [-1]
