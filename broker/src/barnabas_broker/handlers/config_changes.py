"""The change of configs, for AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from barnabas_broker.handlers.handler_environment import HandlerEnvironment, check_this_broker
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

CONFIGS_MAX: Final = 1_000
"""The maximum number of configs of one resource in a request, because a resource is changed in one turn of the loop."""
_LISTENER_PREFIX: Final = "listener.name."


async def alter_each(
    environment: HandlerEnvironment,
    turn: FairTurn,
    requests: Sequence[tuple[int, str, list[ConfigChange] | ApiError]],
    *,
    replaces: bool,
    validate_only: bool,
) -> list[tuple[int, str, ApiError | None]]:
    """Change the configs of all valid resources; return the type and name of each resource, and its error or None.

    An item of `requests` has a resource type, a resource name, and the changes, or the error of an invalid change. With
    `replaces`, the changes set all configs of the resource, and all other configs of it are removed.
    """
    wanted: dict[ConfigResource, list[ConfigChange]] = {}
    read: list[ConfigResource | ApiError] = []
    async for kind, name, changes in turn.over(requests):
        resource = changes if isinstance(changes, ApiError) else _resource(kind, name, wanted)
        if isinstance(resource, ConfigResource) and not isinstance(changes, ApiError):
            wanted[resource] = changes
        read.append(resource)
    errors = await _alter(environment, turn, wanted, replaces=replaces, validate_only=validate_only)
    return [
        (kind, name, found if isinstance(found, ApiError) else errors[found])
        async for (kind, name, _), found in turn.along(zip(requests, read, strict=True))
    ]


def too_many_configs(count: int) -> ApiError | None:
    """Return the error for a resource with more configs in a request than CONFIGS_MAX; None for other resources."""
    if count <= CONFIGS_MAX:
        return None
    message = f"a resource has {count} configs in the request; at most {CONFIGS_MAX} are allowed"
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _resource(kind: int, name: str, earlier: Collection[ConfigResource]) -> ConfigResource | ApiError:
    if kind not in {int(known) for known in ConfigResourceType}:
        message = (
            f"resource type {kind} is invalid; allowed are topics (2), brokers (4), broker loggers (8) and groups (32)"
        )
        return ApiError(ErrorCode.INVALID_REQUEST, message)
    resource = ConfigResource(ConfigResourceType(kind), name)
    if resource in earlier:
        return ApiError(ErrorCode.INVALID_REQUEST, f"{resource.type.name} {name} is in the request twice")
    return resource


async def _alter(
    environment: HandlerEnvironment,
    turn: FairTurn,
    wanted: Mapping[ConfigResource, list[ConfigChange]],
    *,
    replaces: bool,
    validate_only: bool,
) -> dict[ConfigResource, ApiError | None]:
    """Change log levels on this broker, and all other configs in the metadata store; return the errors."""
    outcomes: dict[ConfigResource, ApiError | None] = {}
    accepted: dict[ConfigResource, list[ConfigChange]] = {}
    async for resource, changes in turn.along(wanted.items()):
        try:
            if resource.type is ConfigResourceType.BROKER_LOGGER and not replaces:
                check_this_broker(resource.name, environment.broker_id)
                environment.loggers.alter(changes, validate_only=validate_only)
                outcomes[resource] = None
            else:
                accepted[resource] = await _prepared(environment, resource, changes, replaces=replaces)
        except ApiError as error:
            outcomes[resource] = error
    writer = environment.metadata_writer
    if replaces:
        configs = {
            each: {change.name: change.value for change in changes}
            async for each, changes in turn.along(accepted.items())
        }
        return outcomes | await writer.replace_configs(configs, validate_only=validate_only)
    return outcomes | await writer.alter_configs(accepted, validate_only=validate_only)


async def _prepared(
    environment: HandlerEnvironment, resource: ConfigResource, changes: list[ConfigChange], *, replaces: bool
) -> list[ConfigChange]:
    """Return the changes with encrypted passwords, if the resource is a broker.

    Raises ApiError if the encryption key cannot be read, or if this broker cannot use the certificates of its new
    configs. Configs of other brokers are not checked, because this broker cannot read their certificate files.
    """
    config, check, passwords = environment.config, environment.check_certificates, environment.passwords
    if resource.type is not ConfigResourceType.BROKER:
        return changes
    names = [*(change.name for change in changes), *(config.broker_overrides if replaces else ())]
    try:
        is_own = resource.name == str(environment.broker_id)
        if check is not None and is_own and any(name.startswith(_LISTENER_PREFIX) for name in names):
            own = _changed({} if replaces else config.broker_overrides, changes)
            await check(config.with_usable(own, config.cluster_overrides).config)
        if passwords is None:
            return changes
        texts = await passwords.sealed(resource.name, {change.name: change.value for change in changes})
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
    return [replace(change, value=texts[change.name]) for change in changes]


def _changed(overrides: Mapping[str, str], changes: list[ConfigChange]) -> dict[str, str]:
    """Return the overrides after the changes; APPEND and SUBTRACT are treated as SET."""
    after = {**overrides, **{each.name: each.value for each in changes if each.operation is not ConfigOperation.DELETE}}
    removed = {each.name for each in changes if each.operation is ConfigOperation.DELETE}
    return {name: text for name, text in after.items() if text is not None and name not in removed}
