"""AlterConfigs (33), v0 to v2: replaces all configs of each resource."""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_changes import alter_each, too_many_configs
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_broker.wire.messages import AlterConfigsRequest, AlterConfigsResponse
from barnabas_core.errors import ApiError

ResourceResult = AlterConfigsResponse.AlterConfigsResourceResponse
Resource = AlterConfigsRequest.AlterConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the configs, or only check them with validate_only; return an error code for each resource."""
    answer = AnswerInTurns(AlterConfigsResponse, context, environment.answers)
    configs = [
        (each.resource_type, each.resource_name, await _changes(answer, each))
        async for each in answer.over(request.resources)
    ]
    outcomes = await alter_each(environment, answer.turn, configs, replaces=True, validate_only=request.validate_only)
    results = [
        ResourceResult(resource_type=kind, resource_name=name, **error_fields(error))
        async for kind, name, error in answer.over(outcomes)
    ]
    return AlterConfigsResponse(responses=results)


async def _changes(answer: AnswerInTurns, resource: Resource) -> list[ConfigChange] | ApiError:
    refusal = too_many_configs(len(resource.configs))
    if refusal is not None:
        return refusal
    return [ConfigChange(each.name, ConfigOperation.SET, each.value) async for each in answer.over(resource.configs)]
