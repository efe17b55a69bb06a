"""The requests that create and delete topics and add partitions.

The partitions created and deleted per second count against the quota controller_mutation_rate (KIP-599).

CreateTopics (19), v2 to v7: creates topics; v5 adds the configs of the topic to the response, v7 the topic id.

CreatePartitions (37), v0 to v3: adds partitions to topics.

DeleteTopics (20), v1 to v6: deletes topics by name, and from v6 on by name or topic id.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar
from uuid import UUID

from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, error_fields, rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment, Limited
from barnabas_broker.metadata.controller.decisions.alter_configs import NewPartitions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.config.describe import describe_topic
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, in_steps

STRICT_SINCE: Final[Mapping[int, int]] = {3: 0, 19: 6, 20: 5, 37: 3}
"""The first versions of CreateTopics, DeleteTopics and CreatePartitions that return an error if the client exceeds the
quota. Clients with earlier versions are only throttled. Metadata never creates a topic that exceeds the quota."""

NameT = TypeVar("NameT")


def created_partitions(environment: HandlerEnvironment, topic: NewTopic) -> int:
    """Return the number of partitions that the creation of a topic makes."""
    if topic.assignments:
        return len(topic.assignments)
    return topic.partitions if topic.partitions > 0 else environment.config.num_partitions


def _exceeded(limited: Limited) -> ApiError | None:
    """Return the error for a topic that exceeds the quota; None if the client is within its quota."""
    wait_ms = limited.wait_ms()
    if not wait_ms:
        return None
    message = f"the client has used up its quota controller_mutation_rate={limited.limit}; try again in {wait_ms} ms"
    return ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)


class MutationCharge(Generic[NameT]):
    """The partitions that a request creates or deletes, by topic name or id, charged to the client's quota."""

    def __init__(
        self, environment: HandlerEnvironment, context: RequestContext, costs: Mapping[NameT, int], *, is_free: bool
    ) -> None:
        limits = None
        if environment.quotas.are_set and not is_free:
            limits = context.client.limits(environment.quotas)
        self._limited = None if limits is None else limits.mutations
        self._costs = costs
        self._is_strict = context.api_version >= STRICT_SINCE[context.api_key]
        self.refused: dict[NameT, ApiError] = {}

    def charge(self) -> InSteps[list[NameT]]:
        """Charge the quota for one topic after another, in steps; return the topics that are not refused.

        Before request version STRICT_SINCE, all topics are charged, and the client is only throttled. From STRICT_SINCE
        on, topics that exceed the quota are added to `refused`, and not charged.
        """
        if self._limited is None:
            return list(self._costs)
        error: ApiError | None = None
        for number, (name, cost) in enumerate(self._costs.items()):
            if self._is_strict and error is None:
                error = _exceeded(self._limited)
            if error is None:
                self._limited.count(cost)
            else:  # All further topics have the same error, because a request may have very many.
                self.refused[name] = error
            if number % STEP_ELEMENTS == 0:
                yield 0
        return [name for name in self._costs if name not in self.refused]

    def give_back(self, failed: Iterable[NameT]) -> InSteps[None]:
        """Give back the charge for topics that were not created or deleted, in steps."""
        if self._limited is not None:
            limited = self._limited
            charged = (name for name in failed if name not in self.refused)
            yield from in_steps(charged, lambda name: limited.count(-self._costs[name]))

    def throttle_ms(self, outcomes: Mapping[NameT, object]) -> InSteps[int]:
        """Give back the charge for topics that failed, in steps; return the throttle time in ms for the response."""
        if self._limited is None:
            return 0
        yield from self.give_back([name for name, outcome in outcomes.items() if isinstance(outcome, ApiError)])
        wait_ms = self._limited.wait_ms()
        self._limited.throttled(wait_ms)
        return wait_ms


CreatedTopic = CreateTopicsResponse.CreatableTopicResult


async def create_topics(
    environment: HandlerEnvironment, context: RequestContext, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create topics, or only check them with validate_only, and return an outcome for each."""
    answer = AnswerInTurns(CreateTopicsResponse, context, environment.answers)
    wanted = [_new_topic(topic) async for topic in answer.over(request.topics)]
    costs = {each.name: created_partitions(environment, each) async for each in answer.over(wanted)}
    charge = MutationCharge(environment, context, costs, is_free=request.validate_only)
    await answer.turn.run(charge.charge())
    allowed = [each async for each in answer.over(wanted) if each.name not in charge.refused]
    created = await environment.metadata_writer.create_topics(allowed, validate_only=request.validate_only)
    outcomes = {**created, **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    rights = rights_of(environment, context.client)
    results = await answer.elements(
        ("topics",), outcomes.items(), lambda each: _created_topic(environment, rights, *each)
    )
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return CreateTopicsResponse(throttle_time_ms=throttle_ms, topics=results)


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs={each.name: each.value for each in topic.configs},
    )


def _created_topic(
    environment: HandlerEnvironment, rights: Rights, name: str, outcome: TopicDocument | ApiError
) -> CreatedTopic:
    if isinstance(outcome, ApiError):
        return CreatedTopic(name=name, error_code=outcome.code, error_message=outcome.message)
    if not rights.may_see(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        return CreatedTopic(
            name=name, topic_id=outcome.topic_id, topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )
    return CreatedTopic(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
        configs=_configs(environment, outcome),
    )


def _configs(environment: HandlerEnvironment, document: TopicDocument) -> list[CreatedTopic.CreatableTopicConfigs]:
    return [
        CreatedTopic.CreatableTopicConfigs(
            name=each.name,
            value=each.value,
            read_only=each.read_only,
            config_source=each.source,
            is_sensitive=each.sensitive,
        )
        for each in describe_topic(document.configs, environment.config)
    ]


ExtendedTopic = CreatePartitionsResponse.CreatePartitionsTopicResult


async def create_partitions(
    environment: HandlerEnvironment, context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Add partitions, or only check the request with validate_only; return an error code for each topic."""
    answer = AnswerInTurns(CreatePartitionsResponse, context, environment.answers)
    wanted = [_new_partitions(topic) async for topic in answer.over(request.topics)]
    costs = {each.name: _added(environment, each) async for each in answer.over(wanted)}
    charge = MutationCharge(environment, context, costs, is_free=request.validate_only)
    await answer.turn.run(charge.charge())
    allowed = [each async for each in answer.over(wanted) if each.name not in charge.refused]
    made = await environment.metadata_writer.create_partitions(allowed, validate_only=request.validate_only)
    outcomes = {**made, **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    results = [ExtendedTopic(name=name, **error_fields(error)) async for name, error in answer.along(outcomes.items())]
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return CreatePartitionsResponse(throttle_time_ms=throttle_ms, results=results)


def _new_partitions(topic: CreatePartitionsRequest.CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [each.broker_ids for each in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def _added(environment: HandlerEnvironment, wanted: NewPartitions) -> int:
    topic = environment.image.topics.get(wanted.name)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)


DeletedTopic = DeleteTopicsResponse.DeletableTopicResult
NO_ID: Final = UUID(int=0)


async def delete_topics(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteTopicsRequest
) -> DeleteTopicsResponse:
    """Delete topics, and return an outcome for each."""
    answer = AnswerInTurns(DeleteTopicsResponse, context, environment.answers)
    by_state = [
        topic.topic_id if topic.name is None else topic.name async for topic in answer.over(request.topics or ())
    ]
    asked = dict.fromkeys([*by_state, *(request.topic_names or ())])
    rights = rights_of(environment, context.client)
    refused = {each async for each in answer.over(asked) if not _may_delete(environment, rights, each)}
    costs = {each: _partitions(environment, each) async for each in answer.over(asked) if each not in refused}
    charge = MutationCharge(environment, context, costs, is_free=False)
    allowed = await answer.turn.run(charge.charge())
    outcomes = {**await environment.metadata_writer.delete_topics(allowed), **charge.refused}
    answer.turn.keep_outcomes(outcomes)
    results = await answer.elements(("responses",), outcomes.items(), lambda each: _deleted_topic(*each))
    refusals = [_refused(environment, rights, each) async for each in answer.over(asked) if each in refused]
    throttle_ms = await answer.turn.run(charge.throttle_ms(outcomes))
    return DeleteTopicsResponse(throttle_time_ms=throttle_ms, responses=[*results, *refusals])


def _partitions(environment: HandlerEnvironment, topic: str | UUID) -> int:
    name = topic if isinstance(topic, str) else environment.image.topic_name(topic)
    document = environment.image.topics.get(name or "")
    return 0 if document is None else len(document.partitions)


def _may_delete(environment: HandlerEnvironment, rights: Rights, asked: str | UUID) -> bool:
    """True if the client may delete the topic, or if the topic id is unknown, which gets a different error later."""
    name = asked if isinstance(asked, str) else environment.image.topic_name(asked)
    return (
        name is None
        or rights.may_see(AclOperation.DELETE, ResourceType.CLUSTER)
        or rights.may(AclOperation.DELETE, ResourceType.TOPIC, name)
    )


def _refused(environment: HandlerEnvironment, rights: Rights, asked: str | UUID) -> DeletedTopic:
    """Return the result for a topic that the client may not delete.

    If the topic was requested by id, the result has its name only if the client may describe the topic.
    """
    if isinstance(asked, str):
        return DeletedTopic(name=asked, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    name = environment.image.topic_name(asked)
    shown = name if name is not None and rights.may_see(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else None
    return DeletedTopic(name=shown, topic_id=asked, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _deleted_topic(asked: str | UUID, outcome: TopicDocument | ApiError) -> DeletedTopic:
    if isinstance(outcome, ApiError):
        return DeletedTopic(
            name=asked if isinstance(asked, str) else None,
            topic_id=NO_ID if isinstance(asked, str) else asked,
            error_code=outcome.code,
            error_message=outcome.message,
        )
    return DeletedTopic(name=outcome.name, topic_id=outcome.topic_id, error_message=None)
