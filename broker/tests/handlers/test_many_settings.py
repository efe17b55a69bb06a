"""Responses about the settings of very many topics are made and encoded over several turns."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from asked_in_turns import MANY, MOST, SlowClock, ask

from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.messages import CreateTopicsRequest, DescribeConfigsRequest
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_timers import ManualTimers

TOPIC = 2
CONFIG = parse_broker_config({"node.id": "1", "log.dirs": "/logs"})
Resource = DescribeConfigsRequest.DescribeConfigsResource


def topic(number: int, **configs: str) -> TopicDocument:
    return TopicDocument(f"t-{number}", UUID(int=number + 1), (PartitionState((1,), 1, 0, (1,)),), configs)


class World:
    """The parts of a broker that these requests use."""

    def __init__(self) -> None:
        self.topics = {each.name: each for each in map(topic, range(MANY))}
        self.handler_environment: Any = SimpleNamespace(
            authorizer=None,
            quotas=SimpleNamespace(are_set=False),
            image=SimpleNamespace(topics=self.topics),
            config=CONFIG,
            answers=LargeResponses(SlowClock(), ManualTimers()),
            metadata_writer=SimpleNamespace(create_topics=self._create),
        )

    async def _create(self, wanted: object, *, validate_only: bool) -> dict[str, TopicDocument | ApiError]:
        return self.topics | {"one more": ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "a blank")}


def all_settings(world: World) -> DescribeConfigsRequest:
    resources = [Resource(resource_type=TOPIC, resource_name=name, configuration_keys=None) for name in world.topics]
    return DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=False)


def test_settings_of_many_topics_are_described_over_several_turns() -> None:
    world = World()
    answered = ask(world.handler_environment, all_settings(world), 4)
    assert [each.resource_name for each in answered.answer.results] == list(world.topics)
    assert {len(each.configs) for each in answered.answer.results} == {len(answered.answer.results[0].configs)}
    assert answered.largest_share < MOST


def test_a_topic_changed_or_deleted_between_turns_is_described_in_its_new_state() -> None:
    world = World()
    last, last_but_one = f"t-{MANY - 1}", f"t-{MANY - 2}"
    request = all_settings(world)

    def change(turn: int) -> None:
        if turn == 1:
            del world.topics[last]
            world.topics[last_but_one] = topic(MANY - 2, **{"retention.ms": "77"})

    *_, changed, deleted = ask(world.handler_environment, request, 4, change).answer.results
    assert deleted.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.value for each in changed.configs if each.name == "retention.ms"] == ["77"]


def test_creations_of_many_topics_are_reported_over_several_turns() -> None:
    world = World()
    request = CreateTopicsRequest(topics=[], timeout_ms=1, validate_only=False)
    answered = ask(world.handler_environment, request, 7)
    assert [each.name for each in answered.answer.topics] == [*world.topics, "one more"]
    assert {each.error_code for each in answered.answer.topics[:-1]} == {ErrorCode.NONE}
    assert answered.answer.topics[-1].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answered.largest_share < MOST
