"""IncrementalAlterConfigs (44), v0 to v1: sets, deletes, appends to and subtracts from single configs (KIP-339).

The resources are topics, brokers, groups, and the loggers of this broker (KIP-412).
"""

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_changes import alter_each, too_many_configs
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_broker.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from barnabas_core.errors import ApiError, ErrorCode

ResourceResult = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the configs, or only check the changes with validate_only; return an error code for each resource.

    If one change of a resource is invalid, no config of that resource changes.
    """
    answer = AnswerInTurns(IncrementalAlterConfigsResponse, context, environment.answers)
    changes = [
        (each.resource_type, each.resource_name, await _changes(answer, each))
        async for each in answer.over(request.resources)
    ]
    outcomes = await alter_each(environment, answer.turn, changes, replaces=False, validate_only=request.validate_only)
    results = [
        ResourceResult(resource_type=kind, resource_name=name, **error_fields(error))
        async for kind, name, error in answer.over(outcomes)
    ]
    return IncrementalAlterConfigsResponse(responses=results)


async def _changes(answer: AnswerInTurns, resource: Resource) -> list[ConfigChange] | ApiError:
    """Return the changes of a resource, or an error if one of the changes is invalid."""
    refusal = too_many_configs(len(resource.configs))
    if refusal is not None:
        return refusal
    known = {int(operation) for operation in ConfigOperation}
    async for each in answer.over(resource.configs):
        if each.config_operation not in known:
            message = (
                f"config operation {each.config_operation} of {each.name} is unknown; allowed are {sorted(known)} "
                "(set, delete, append, subtract)"
            )
            return ApiError(ErrorCode.INVALID_REQUEST, message)
    return [
        ConfigChange(each.name, ConfigOperation(each.config_operation), each.value)
        async for each in answer.over(resource.configs)
    ]
