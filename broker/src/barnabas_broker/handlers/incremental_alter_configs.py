"""IncrementalAlterConfigs (44), v0 to v1: single settings set, removed, appended to or subtracted from (KIP-339)."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_outcomes import alter_each
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_broker.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

ResourceResult = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """For each resource that its settings are changed, or why none of them is."""
    changes = [(each.resource_type, each.resource_name, _changes(each)) for each in request.resources]
    outcomes = await alter_each(
        changes, lambda wanted: environment.metadata_writer.alter_configs(wanted, validate_only=request.validate_only)
    )
    results = [
        ResourceResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        for kind, name, code, message in outcomes
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=results)


def _changes(resource: Resource) -> list[ConfigChange] | str:
    """The changes, or what is wrong with them."""
    known = {int(operation) for operation in ConfigOperation}
    for each in resource.configs:
        if each.config_operation not in known:
            return f"config operation {each.config_operation} of {each.name}; {sorted(known)} are allowed"
    return [ConfigChange(each.name, ConfigOperation(each.config_operation), each.value) for each in resource.configs]
