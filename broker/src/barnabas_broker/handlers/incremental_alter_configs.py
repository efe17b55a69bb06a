"""IncrementalAlterConfigs (44), v0 to v1: sets, deletes, appends to and subtracts from single configs (KIP-339).

The resources are topics, brokers, and the loggers of this broker (KIP-412).
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from barnabas_broker.handlers.broker_loggers import check_this_broker
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.config_certificates import check_certificates
from barnabas_broker.handlers.config_outcomes import alter_each
from barnabas_broker.handlers.config_passwords import sealed
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.wire.messages import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from barnabas_core.errors import ApiError

ResourceResult = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
Resource = IncrementalAlterConfigsRequest.AlterConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the configs, or only check the changes with validate_only; return an error code for each resource.

    If one change of a resource is invalid, no config of that resource changes.
    """
    changes = [(each.resource_type, each.resource_name, _changes(each)) for each in request.resources]
    outcomes = await alter_each(changes, partial(_alter, environment, validate_only=request.validate_only))
    results = [
        ResourceResult(error_code=code, error_message=message, resource_type=kind, resource_name=name)
        for kind, name, code, message in outcomes
    ]
    return IncrementalAlterConfigsResponse(responses=results)


async def _alter(
    environment: HandlerEnvironment, wanted: Mapping[ConfigResource, list[ConfigChange]], *, validate_only: bool
) -> dict[ConfigResource, ApiError | None]:
    """Change log levels on this broker, and all other configs in the metadata store; return the errors."""
    stored = {each: changes for each, changes in wanted.items() if each.type is not ConfigResourceType.BROKER_LOGGER}
    refused: dict[ConfigResource, ApiError | None] = {}
    accepted: dict[ConfigResource, list[ConfigChange]] = {}
    for each, changes in stored.items():
        try:
            own = _with_changes(environment.config.broker_overrides, changes)
            await check_certificates(environment, each, own, [change.name for change in changes])
            accepted[each] = await _sealed(environment, each, changes)
        except ApiError as error:
            refused[each] = error
    outcomes = {**refused, **await environment.metadata_writer.alter_configs(accepted, validate_only=validate_only)}
    for resource in wanted.keys() - stored.keys():
        outcomes[resource] = _alter_loggers(environment, resource.name, wanted[resource], validate_only=validate_only)
    return outcomes


def _with_changes(overrides: Mapping[str, str], changes: list[ConfigChange]) -> dict[str, str]:
    """Return the overrides after the changes; APPEND and SUBTRACT are treated as SET."""
    removed = {change.name for change in changes if change.operation is ConfigOperation.DELETE}
    set_now = {change.name: change.value for change in changes if change.value is not None}
    return {name: text for name, text in {**overrides, **set_now}.items() if name not in removed}


async def _sealed(
    environment: HandlerEnvironment, resource: ConfigResource, changes: list[ConfigChange]
) -> list[ConfigChange]:
    texts = await sealed(environment, resource, {change.name: change.value for change in changes})
    return [replace(change, value=texts[change.name]) for change in changes]


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
    """Return the changes of a resource, or an error message if one of the changes is invalid."""
    known = {int(operation) for operation in ConfigOperation}
    for each in resource.configs:
        if each.config_operation not in known:
            return (
                f"config operation {each.config_operation} of {each.name} is unknown; allowed are {sorted(known)} "
                "(set, delete, append, subtract)"
            )
    return [ConfigChange(each.name, ConfigOperation(each.config_operation), each.value) for each in resource.configs]
