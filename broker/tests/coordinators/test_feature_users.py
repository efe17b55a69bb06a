"""Before group.version is lowered, each broker that leads a partition of `__consumer_offsets` lists its groups."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from placed_topics import PlacedTopics

from barnabas_broker.coordinators.runtime.peer_requests import FeatureUsers, LinkEnvironment
from barnabas_broker.metadata.model import GROUP_VERSION
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.messages import ListGroupsResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS
from harness.manual_clock import ManualClock


class Brokers:
    """Brokers that answer ListGroups with their groups of the consumer protocol, or with an error."""

    def __init__(self, *leaders: int) -> None:
        topics = PlacedTopics()
        topics.lead(CONSUMER_OFFSETS, *leaders, topic_id=1)
        self.groups: dict[int, list[str]] = {}
        self.errors: dict[int, ErrorCode] = {}
        links: Any = self
        environment = LinkEnvironment(links, self._spawn, asyncio.timeout, ManualClock(), "test")
        self.users = FeatureUsers(environment, topics.image)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        raise AssertionError("no task is needed")

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Any:
        def send(frame: bytes, answer: Callable[[memoryview], None]) -> None:
            view = memoryview(frame)
            header = parse_request_header(view, 4, len(view))
            request = decode_request(header.api_key, header.api_version, view[header.body_start :])
            assert request.types_filter == ["consumer"]
            listed = [ListGroupsResponse.ListedGroup(group_id=name) for name in self.groups.get(broker_id, [])]
            error = self.errors.get(broker_id, ErrorCode.NONE)
            message = ListGroupsResponse(error_code=error, groups=listed)
            encoded = encode_response(message, header.api_version, header.correlation_id)
            asyncio.get_running_loop().call_soon(answer, memoryview(encoded)[4:])

        return SimpleNamespace(send=send, close=lambda: None)


async def test_the_groups_of_all_coordinators_are_found() -> None:
    brokers = Brokers(1, 2, 1)
    brokers.groups = {1: ["ship", "bill"], 2: ["pay"], 3: ["of no coordinator"]}
    assert await brokers.users.find(GROUP_VERSION) == ["bill", "pay", "ship"]


async def test_a_coordinator_that_is_still_loading_refuses_the_downgrade() -> None:
    brokers = Brokers(1, 2)
    brokers.errors = {2: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    with pytest.raises(ApiError, match="broker 2 cannot list its groups of the consumer protocol; try again later"):
        await brokers.users.find(GROUP_VERSION)


async def test_a_partition_of_the_offsets_without_a_leader_refuses_the_downgrade() -> None:
    with pytest.raises(ApiError, match=f"a partition of {CONSUMER_OFFSETS} without a leader cannot list its groups"):
        await Brokers(1, -1).users.find(GROUP_VERSION)


async def test_a_cluster_without_offsets_has_no_groups() -> None:
    brokers = Brokers(1)
    brokers.users._image.topics.clear()
    assert await brokers.users.find(GROUP_VERSION) == []
