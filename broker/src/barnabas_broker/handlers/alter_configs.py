"""AlterConfigs (33), v0 to v2: all settings of each resource are replaced; IncrementalAlterConfigs is kinder."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_outcomes import alter_each
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterConfigsRequest, AlterConfigsResponse

ResourceResult = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """For each resource that it has these settings and no others, or why not."""
    configs = [
        (each.resource_type, each.resource_name, {one.name: one.value for one in each.configs})
        for each in request.resources
    ]
    outcomes = await alter_each(
        configs, lambda wanted: environment.metadata_writer.replace_configs(wanted, validate_only=request.validate_only)
    )
    results = [
        ResourceResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        for kind, name, code, message in outcomes
    ]
    return AlterConfigsResponse(throttle_time_ms=0, responses=results)
