"""IncrementalAlterConfigs (44), v0 to v1: single settings set, removed, appended to or subtracted from (KIP-339).

Topics, brokers, and the log levels of this broker (KIP-412).
"""

from collections.abc import Mapping
from functools import partial

from barnabas_broker.handlers.broker_loggers import check_this_broker
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_outcomes import alter_each
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.errors import ApiError, ErrorCode

ResourceResult = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """For each resource that its settings are changed, or why none of them is."""
    changes = [(each.resource_type, each.resource_name, _changes(each)) for each in request.resources]
    outcomes = await alter_each(changes, partial(_alter, environment, validate_only=request.validate_only))
    results = [
        ResourceResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        for kind, name, code, message in outcomes
    ]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=results)


async def _alter(
    environment: HandlerEnvironment, wanted: Mapping[ConfigResource, list[ConfigChange]], *, validate_only: bool
) -> dict[ConfigResource, ApiError | None]:
    """Change log levels here, and write all other configs to the metadata store."""
    stored = {each: changes for each, changes in wanted.items() if each.type is not ConfigResourceType.BROKER_LOGGER}
    refused = {each: _why_not(environment, each, changes) for each, changes in stored.items()}
    accepted = {each: changes for each, changes in stored.items() if refused[each] is None}
    outcomes = {**refused, **await environment.metadata_writer.alter_configs(accepted, validate_only=validate_only)}
    for resource in wanted.keys() - stored.keys():
        outcomes[resource] = _alter_loggers(environment, resource.name, wanted[resource], validate_only=validate_only)
    return outcomes


def _why_not(environment: HandlerEnvironment, resource: ConfigResource, changes: list[ConfigChange]) -> ApiError | None:
    """Return why a listener of this broker cannot use the certificates that the changes name."""
    is_own = resource.type is ConfigResourceType.BROKER and resource.name == str(environment.broker_id)
    if not is_own or not any(change.name.startswith("listener.name.") for change in changes):
        return None
    config = environment.config
    removed = {change.name for change in changes if change.operation is ConfigOperation.DELETE}
    own = {name: text for name, text in config.broker_overrides.items() if name not in removed}
    own.update(
        (change.name, change.value) for change in changes if change.value is not None and change.name not in removed
    )
    try:
        environment.check_certificates(config.with_usable(own, config.cluster_overrides).config)
    except InvalidConfig as error:
        return ApiError(ErrorCode.INVALID_REQUEST, str(error))
    return None


def _alter_loggers(
    environment: HandlerEnvironment, broker: str, changes: list[ConfigChange], *, validate_only: bool
) -> ApiError | None:
    try:
        check_this_broker(broker, environment.broker_id)
        environment.loggers.alter(changes, validate_only=validate_only)
    except ApiError as error:
        return error
    return None


def _changes(resource: Resource) -> list[ConfigChange] | str:
    """The changes, or what is wrong with them."""
    known = {int(operation) for operation in ConfigOperation}
    for each in resource.configs:
        if each.config_operation not in known:
            return f"config operation {each.config_operation} of {each.name}; {sorted(known)} are allowed"
    return [ConfigChange(each.name, ConfigOperation(each.config_operation), each.value) for each in resource.configs]
