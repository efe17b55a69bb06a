"""AlterConfigs (33), v0 to v2: replaces all configs of each resource."""

from collections.abc import Mapping
from functools import partial

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_certificates import check_certificates
from barnabas_broker.handlers.config_outcomes import alter_each
from barnabas_broker.handlers.config_passwords import sealed
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource
from barnabas_broker.wire.messages import AlterConfigsRequest, AlterConfigsResponse
from barnabas_core.errors import ApiError

ResourceResult = AlterConfigsResponse.AlterConfigsResourceResponse


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the configs, or only check them with validate_only; return an error code for each resource."""
    configs = [
        (each.resource_type, each.resource_name, {one.name: one.value for one in each.configs})
        for each in request.resources
    ]
    outcomes = await alter_each(configs, partial(_replace, environment, validate_only=request.validate_only))
    results = [
        ResourceResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        for kind, name, code, message in outcomes
    ]
    return AlterConfigsResponse(responses=results)


async def _replace(
    environment: HandlerEnvironment, wanted: Mapping[ConfigResource, Mapping[str, str | None]], *, validate_only: bool
) -> dict[ConfigResource, ApiError | None]:
    accepted: dict[ConfigResource, Mapping[str, str | None]] = {}
    refused: dict[ConfigResource, ApiError | None] = {}
    for resource, configs in wanted.items():
        try:
            own = {name: text for name, text in configs.items() if text is not None}
            changed = (*configs, *environment.config.broker_overrides)
            await check_certificates(environment, resource, own, changed)
            accepted[resource] = await sealed(environment, resource, configs)
        except ApiError as error:
            refused[resource] = error
    return {**refused, **await environment.metadata_writer.replace_configs(accepted, validate_only=validate_only)}
