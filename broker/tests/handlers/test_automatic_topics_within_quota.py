"""Topics that Metadata creates are bounded, and count for the quota controller_mutation_rate."""

from inspect import isawaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas_broker.handlers import metadata
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.handler_environment import ClientQuotas
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
from barnabas_broker.wire.messages import MetadataRequest
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from harness.manual_clock import ManualClock

OF_EVE = EntityQuotas({"user": "eve"}, {"controller_mutation_rate": 1.0})
BURST = 11


class Broker:
    """A broker that creates topics automatically, and encodes none."""

    def __init__(self, *quotas: EntityQuotas) -> None:
        self.created: list[str] = []
        self.failing: dict[str, ErrorCode] = {}
        self.clock = ManualClock()
        image: Any = SimpleNamespace(document=lambda _: ClientQuotasDocument(quotas), subscribe=lambda _: None)
        self.environment: Any = SimpleNamespace(
            authorizer=None,
            config=parse_broker_config({"num.partitions": "2"}),
            image=SimpleNamespace(topics={}, cluster_id="c", live=frozenset(), topic_name=lambda _: None),
            metadata_writer=SimpleNamespace(create_automatically=self._create),
            metadata_answers=SimpleNamespace(turn=lambda _: None),
            encoded_topics=SimpleNamespace(prepare=self._prepare),
            nodes=lambda *_, **__: [],
            controller_id=0,
            quotas=ClientQuotas(image, self.clock, None),
        )

    async def _create(self, names: list[str]) -> dict[str, ErrorCode]:
        self.created += [name for name in names if name not in self.failing]
        return {name: code for name, code in self.failing.items() if name in names}

    async def _prepare(self, *_: object) -> dict[str, object]:
        return {}

    async def ask(self, count: int) -> Any:
        topics = [
            MetadataRequest.MetadataRequestTopic(name=f"t{number}", topic_id=UUID(int=0)) for number in range(count)
        ]
        context = RequestContext(3, 9, Client("CLIENTS", "10.0.0.1:1", "c", "User:eve"))
        answer: Any = metadata.metadata(self.environment, context, MetadataRequest(topics=topics))
        return await answer if isawaitable(answer) else answer


async def test_metadata_creates_no_more_topics_than_the_quota_of_the_client_allows() -> None:
    broker = Broker(OF_EVE)
    answer = await broker.ask(100)
    assert len(broker.created) == BURST // 2 + 1
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert answer.throttle_time_ms == 0
    broker.created.clear()
    await broker.ask(100)
    assert broker.created == []
    broker.clock.pass_time(2)
    await broker.ask(100)
    assert len(broker.created) == 1


async def test_topics_that_metadata_fails_to_create_are_free() -> None:
    broker = Broker(OF_EVE)
    broker.failing = {f"t{number}": ErrorCode.INVALID_REPLICATION_FACTOR for number in range(3)}
    for _ in range(20):
        answer = await broker.ask(3)
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REPLICATION_FACTOR}
    await broker.ask(4)
    assert broker.created == ["t3"]


async def test_metadata_creates_all_topics_for_a_client_without_a_quota() -> None:
    broker = Broker()
    await broker.ask(100)
    assert len(broker.created) == 100


async def test_metadata_creates_no_more_topics_than_one_request_may() -> None:
    broker = Broker()
    answer = await broker.ask(metadata.CREATED_MAX + 1)
    assert len(broker.created) == metadata.CREATED_MAX
    assert len(answer.topics) == metadata.CREATED_MAX + 1
