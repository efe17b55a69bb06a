"""Responses to changes of many topics and partitions, and lists of reassignments, are made over several turns."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from asked_in_turns import MANY, MOST, SlowClock, ask

from barnabas_broker.handlers.configs import CONFIGS_MAX
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.messages import (
    AlterConfigsRequest,
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_timers import ManualTimers

NUMBERS = range(MANY)
MOVING = PartitionState((1, 2), 1, 0, (1,), adding_replicas=(2,))
SETTLED = PartitionState((1,), 1, 0, (1,))
Listed = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
Reassigned = AlterPartitionReassignmentsRequest.ReassignableTopic


class World:
    """A broker with a writer that refuses only the last of many changes."""

    def __init__(self) -> None:
        self.states = {TopicPartition("t", number): MOVING for number in NUMBERS}
        topic = TopicDocument("t", UUID(int=1), (MOVING,) * MANY)
        refusals = dict.fromkeys(self.states) | {TopicPartition("t", MANY - 1): ApiError(ErrorCode.NOT_CONTROLLER, "")}
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            config=None,
            check_certificates=None,
            passwords=None,
            quotas=SimpleNamespace(are_set=False),
            answers=LargeResponses(SlowClock(), ManualTimers()),
            image=SimpleNamespace(topics={"s": TopicDocument("s", UUID(int=2), (SETTLED,)), "t": topic}),
            metadata_writer=SimpleNamespace(
                delete_topics=self._delete,
                elect_leaders=_always(refusals),
                alter_reassignments=_always(refusals),
                replace_configs=_done,
                alter_configs=_done,
                reassignment=lambda *which: self.states.get(TopicPartition(*which)),
            ),
        )

    async def _delete(self, topics: list[str]) -> dict[str, TopicDocument | ApiError]:
        gone = {name: TopicDocument(name, UUID(int=number + 1), (SETTLED,)) for number, name in enumerate(topics)}
        return gone | {topics[-1]: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")}


async def _done(changes: dict[ConfigResource, object], **_: object) -> dict[ConfigResource, None]:
    return dict.fromkeys(changes)


def _always(outcomes: object) -> Any:
    async def answer(*_: object, **__: object) -> object:
        return outcomes

    return answer


def test_deletions_of_many_topics_are_reported_over_several_turns() -> None:
    names = [f"t-{number}" for number in NUMBERS]
    topics = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    request = DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=1)
    answered = ask(World().handler_environment, request, 6)
    assert [each.name for each in answered.answer.responses] == names
    assert {each.error_code for each in answered.answer.responses[:-1]} == {ErrorCode.NONE}
    assert answered.answer.responses[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answered.largest_share < MOST


def test_elections_of_many_leaders_are_reported_over_several_turns() -> None:
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1)
    answered = ask(World().handler_environment, request, 2)
    (topic,) = answered.answer.replica_election_results
    assert [each.partition_id for each in topic.partition_result] == [*NUMBERS]
    assert [each.error_code for each in topic.partition_result[-2:]] == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER]
    assert answered.largest_share < MOST


def test_reassignments_of_many_partitions_are_reported_over_several_turns() -> None:
    wanted = [Reassigned.ReassignablePartition(partition_index=number, replicas=[2]) for number in NUMBERS]
    request = AlterPartitionReassignmentsRequest(timeout_ms=1, topics=[Reassigned(name="t", partitions=wanted)])
    answered = ask(World().handler_environment, request, 0)
    (topic,) = answered.answer.responses
    assert [each.partition_index for each in topic.partitions] == [*NUMBERS]
    assert [each.error_code for each in topic.partitions[-2:]] == [ErrorCode.NONE, ErrorCode.NOT_CONTROLLER]
    assert answered.largest_share < MOST


@pytest.mark.parametrize("kind", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
def test_a_resource_with_very_many_configs_is_refused_and_others_are_changed(kind: Any) -> None:
    resource = kind.AlterConfigsResource
    topics = [
        resource(
            resource_type=2,
            resource_name=f"t-{count}",
            configs=[resource.AlterableConfig(name=f"c-{number}", value="1") for number in range(count)],
        )
        for count in (CONFIGS_MAX + 1, CONFIGS_MAX)
    ]
    answered = ask(World().handler_environment, kind(resources=topics, validate_only=True), 1)
    found = {each.resource_name: (each.error_code, each.error_message) for each in answered.answer.responses}
    assert found == {
        "t-1001": (
            ErrorCode.INVALID_REQUEST,
            "a resource has 1001 configs in the request; at most 1000 are allowed",
        ),
        "t-1000": (ErrorCode.NONE, None),
    }


def listing(topics: list[Any] | None) -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(timeout_ms=1, topics=topics)


@pytest.mark.parametrize(
    "topics",
    [
        None,
        [Listed(name="t", partition_indexes=[*NUMBERS]), Listed(name="s", partition_indexes=[0])],
        [Listed(name="t", partition_indexes=[*NUMBERS, 0]), Listed(name="t", partition_indexes=[1])],
    ],
    ids=["all", "named", "named twice"],
)
def test_many_reassignments_are_listed_over_several_turns(topics: list[Any] | None) -> None:
    answered = ask(World().handler_environment, listing(topics), 0)
    (topic,) = answered.answer.topics
    assert [each.partition_index for each in topic.partitions] == [*NUMBERS]
    assert {tuple(each.adding_replicas) for each in topic.partitions} == {(2,)}
    assert answered.largest_share < MOST


def test_a_reassignment_that_completes_between_turns_is_not_listed() -> None:
    world = World()

    def end(turn: int) -> None:
        if turn == 2:  # The first turn is short: it may end before the first partition.
            world.states.clear()

    (topic,) = ask(world.handler_environment, listing(None), 0, end).answer.topics
    assert 0 < len(topic.partitions) < MANY / 2
