"""Responses about very many groups, or about a group with very many offsets, are made over several turns."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from asked_in_turns import MANY, MOST, SlowClock, ask
from coordinator_world import Client, World

from barnabas_broker.coordinators.groups.messages import CommittedOffset, GroupRecord, OffsetKey
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.messages import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    ListGroupsRequest,
    OffsetFetchRequest,
)
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS

NAMES = [f"group-{number}" for number in range(MANY)]
LARGE = "large"
STATE = PartitionState((1,), 1, 0, (1,))
FLIGHTS = TopicDocument("flights", UUID(int=7), (STATE,) * MANY)
Asked = OffsetFetchRequest.OffsetFetchRequestGroup
OF_TOPIC = [
    Asked.OffsetFetchRequestTopics(name="flights", topic_id=FLIGHTS.topic_id, partition_indexes=list(range(MANY)))
]
OF_OLD_TOPIC = [OffsetFetchRequest.OffsetFetchRequestTopic(name="flights", partition_indexes=list(range(MANY)))]


class Broker:
    """A broker that coordinates many groups, and a group with many offsets."""

    def __init__(self) -> None:
        self.world = World()
        of_each = [GroupRecord(OffsetKey(name, "ferries", 0), CommittedOffset(0)) for name in NAMES]
        of_large = [
            GroupRecord(OffsetKey(LARGE, "flights", number), CommittedOffset(number, topic_id=FLIGHTS.topic_id))
            for number in range(MANY)
        ]
        self.world.log.write(0, [record.encode() for record in of_each + of_large])
        self.world.crash(survivors=1)
        self.topics = {each.name: each for each in (FLIGHTS, TopicDocument(CONSUMER_OFFSETS, UUID(int=8), (STATE,)))}
        by_id = {each.topic_id: name for name, each in self.topics.items()}
        here = SimpleNamespace(broker_id=1), Endpoint("PLAINTEXT", "here", 9092)
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            groups=self.world.coordinator,
            image=SimpleNamespace(topics=self.topics, topic_name=by_id.get),
            answers=LargeResponses(SlowClock(), self.world.timers),
            nodes=lambda listener_name: [here],
        )

    def resign(self, turn: int) -> None:
        """Resign after the first turn."""
        if turn == 1:
            self.world.resign()


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_many_groups_are_listed_over_several_turns(broker: Broker) -> None:
    request = ListGroupsRequest(states_filter=[], types_filter=[])
    answered = ask(broker.handler_environment, request, 5)
    assert {each.group_id for each in answered.answer.groups} == {*NAMES, LARGE}
    assert answered.largest_share < MOST


def test_groups_are_listed_although_the_coordinator_resigns_between_turns(broker: Broker) -> None:
    answer = ask(
        broker.handler_environment, ListGroupsRequest(states_filter=[], types_filter=[]), 5, broker.resign
    ).answer
    assert {each.group_id for each in answer.groups} == {*NAMES, LARGE}


def test_many_groups_are_described_over_several_turns(broker: Broker) -> None:
    answered = ask(
        broker.handler_environment, DescribeGroupsRequest(groups=NAMES, include_authorized_operations=False), 5
    )
    assert [(each.group_id, each.group_state) for each in answered.answer.groups] == [(name, "Empty") for name in NAMES]
    assert answered.largest_share < MOST


def test_groups_are_not_described_after_the_coordinator_resigned_between_turns(broker: Broker) -> None:
    request = DescribeGroupsRequest(groups=NAMES, include_authorized_operations=False)
    groups = ask(broker.handler_environment, request, 5, broker.resign).answer.groups
    assert groups[0].error_code == ErrorCode.NONE
    assert groups[-1].error_code == ErrorCode.NOT_COORDINATOR


def test_coordinators_of_many_groups_are_found_over_several_turns(broker: Broker) -> None:
    answered = ask(broker.handler_environment, FindCoordinatorRequest(key_type=0, coordinator_keys=NAMES), 4)
    assert [(each.key, each.node_id) for each in answered.answer.coordinators] == [(name, 1) for name in NAMES]
    assert answered.largest_share < MOST


def offsets(version: int, answer: Any) -> dict[int, int]:
    """Return the offsets of the only topic by partition."""
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    (topic,) = topics
    return {each.partition_index: each.committed_offset for each in topic.partitions}


def request_for(version: int, topics: Any) -> OffsetFetchRequest:
    if version >= 8:
        return OffsetFetchRequest(groups=[Asked(group_id=LARGE, topics=topics)], require_stable=False)
    return OffsetFetchRequest(group_id=LARGE, topics=topics, require_stable=False)


@pytest.mark.parametrize(
    ("version", "topics"),
    [(7, None), (7, OF_OLD_TOPIC), (8, None), (8, OF_TOPIC), (10, OF_TOPIC)],
    ids=["all-7", "named-7", "all-8", "named-8", "by-id"],
)
def test_many_offsets_of_a_group_are_fetched_over_several_turns(broker: Broker, version: int, topics: Any) -> None:
    answered = ask(broker.handler_environment, request_for(version, topics), version)
    assert offsets(version, answered.answer) == {number: number for number in range(MANY)}
    assert answered.largest_share < MOST


def test_fetched_offsets_are_a_snapshot_despite_commits_and_a_resignation_between_turns(
    broker: Broker,
) -> None:
    def commit_and_resign(turn: int) -> None:
        if turn == 1:
            client = Client(broker.world, "stranger", group_id=LARGE)
            answers = client.commit(*[("flights", number, 77) for number in range(MANY)])
            broker.world.timers.pass_time()
            assert answers == [[ErrorCode.NONE] * MANY]
            broker.world.resign()

    answer = ask(broker.handler_environment, request_for(8, None), 8, commit_and_resign).answer
    assert offsets(8, answer) == {number: number for number in range(MANY)}


def test_a_topic_recreated_between_turns_has_no_offsets(broker: Broker) -> None:
    def recreate(turn: int) -> None:
        if turn == 1:
            broker.topics["flights"] = TopicDocument("flights", UUID(int=9), (STATE,) * MANY)

    answer = ask(broker.handler_environment, request_for(8, None), 8, recreate).answer
    assert set(offsets(8, answer).values()) == {-1}
