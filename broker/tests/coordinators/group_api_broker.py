"""A broker with groups; tests send it requests through the handlers of the group APIs."""

import asyncio
from collections.abc import Iterator
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from coordinator_world import World
from group_script import subscription
from kafka.protocol import admin, consumer, metadata, producer
from msgspec.structs import replace

from barnabas_broker.coordinators.transactions.coordinator import ProducerIds
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.table import message_handler
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import API_SPECS
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ErrorCode

FLIGHTS_ID, OFFSETS_ID, UNKNOWN_ID = UUID(int=7), UUID(int=8), UUID(int=9)
CONTEXT = RequestContext(0, 0, Client("PLAINTEXT", "10.0.0.7:50123", "a"))
REQUESTS = {
    message.API_KEY: message
    for message in (
        *(getattr(consumer, name) for name in consumer.__all__),
        *(getattr(admin, name) for name in admin.__all__),
        metadata.FindCoordinatorRequest,
        producer.InitProducerIdRequest,
    )
    if getattr(message, "__name__", "").endswith("Request")
}
RESPONSES = {
    message.API_KEY: message
    for message in (
        *(getattr(consumer, name) for name in consumer.__all__),
        *(getattr(admin, name) for name in admin.__all__),
        metadata.FindCoordinatorResponse,
        producer.InitProducerIdResponse,
    )
    if getattr(message, "__name__", "").endswith("Response")
}
COMMIT, FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST = range(8, 17)


def topic(name: str, topic_id: UUID, partitions: int) -> TopicDocument:
    return TopicDocument(name, topic_id, (PartitionState((1,), 1, 0, (1,)),) * partitions)


class Broker:
    """A broker with one topic, as a client of the group APIs sees it."""

    def __init__(self) -> None:
        self.world = World(partitions=3)
        self.topics = {"flights": topic("flights", FLIGHTS_ID, 6)}
        self.created: list[str] = []
        self.is_fenced = False
        self.blocks = 0
        image = SimpleNamespace(topics=self.topics, topic_name=self._topic_name)
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            groups=self.world.coordinator,
            image=image,
            clock=self.world.clock,
            answers=LargeResponses(self.world.clock, self.world.timers),
            metadata_writer=SimpleNamespace(create_automatically=self._create),
            producer_ids=ProducerIds(self._allocate),
            nodes=self._nodes,
        )

    def _topic_name(self, topic_id: UUID) -> str | None:
        return next((name for name, document in self.topics.items() if document.topic_id == topic_id), None)

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        self.created += names
        compact = {"cleanup.policy": "compact"}
        self.topics |= {name: replace(topic(name, OFFSETS_ID, 3), configs=compact) for name in names}
        return {}

    async def _allocate(self) -> range:
        self.blocks += 1
        return range(1000 * self.blocks, 1000 * self.blocks + 1000)

    def _nodes(self, listener_name: str) -> Iterator[tuple[BrokerRegistration, Endpoint]]:
        endpoint = Endpoint(listener_name, "kafka.example", 9092)
        if not self.is_fenced:
            yield BrokerRegistration(1, UUID(int=1), (endpoint,)), endpoint

    def ask(self, api_key: int, version: int, **fields: Any) -> Any:
        """Return the response to one request."""
        return asyncio.run(self._ask(api_key, version, fields))

    async def _ask(self, api_key: int, version: int, fields: dict[str, Any]) -> Any:
        body = bytes(REQUESTS[api_key](**fields).encode(version=version))
        request = decode_request(api_key, version, memoryview(body))
        context = CONTEXT._replace(api_key=api_key, api_version=version)
        response = message_handler(api_key)(self.handler_environment, context, request)
        self.world.timers.pass_time()
        if isawaitable(response):
            waiting = asyncio.ensure_future(response)
            while not waiting.done():
                await asyncio.sleep(0)
                self.world.timers.pass_time()
            response = waiting.result()
        frame = bytes(encode_response(response, version, correlation_id=7))
        first_flexible = API_SPECS[api_key].first_flexible_version
        is_flexible = first_flexible is not None and version >= first_flexible
        return RESPONSES[api_key].decode(frame[9 if is_flexible else 8 :], version=version)

    def member(self, version: int = 9, **fields: Any) -> Any:
        """Send a JoinGroup of the only member, twice if its member id is required; return the response."""
        asked = {
            "group_id": "readers",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": "",
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [Protocol(name="range", metadata=subscription(["flights"]))],
        } | fields
        joined = self.ask(JOIN, version, **asked)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            joined = self.ask(JOIN, version, **asked | {"member_id": joined.member_id})
        return joined

    def stable(self) -> Any:
        """Join and sync the only member; return the response of the join."""
        joined = self.member()
        self.sync(5, joined.member_id)
        return joined

    def sync(self, version: int, member_id: str) -> Any:
        """Send a SyncGroup of the only member."""
        return self.ask(
            SYNC,
            version,
            group_id="readers",
            generation_id=1,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[Assignment(member_id=member_id, assignment=b"all")],
        )

    def commit(self, version: int, **fields: Any) -> Any:
        """Commit offsets of flights-5 and of a topic that does not exist, by a client that is no member."""
        partition = CommitPartition(
            partition_index=5, committed_offset=3, committed_leader_epoch=2, committed_metadata="at gate 4"
        )
        topics = [
            CommitTopic(name="flights", topic_id=FLIGHTS_ID, partitions=[partition]),
            CommitTopic(name="nowhere", topic_id=UNKNOWN_ID, partitions=[partition]),
        ]
        stranger = {"member_id": "", "generation_id_or_member_epoch": -1, "group_id": "readers", "topics": topics}
        return self.ask(COMMIT, version, **stranger | fields)


Protocol = consumer.JoinGroupRequest.JoinGroupRequestProtocol
Assignment = consumer.SyncGroupRequest.SyncGroupRequestAssignment
CommitTopic = consumer.OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
