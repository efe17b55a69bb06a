"""The steps that AlterConfigs and IncrementalAlterConfigs share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResource, ConfigResourceType
from barnabas_core.errors import ApiError, ErrorCode

Wanted = TypeVar("Wanted")


class ConfigOutcome(NamedTuple):
    """The outcome for one resource of the request; NONE means success."""

    resource_type: int
    resource_name: str
    code: ErrorCode
    message: str | None


async def alter_each(
    requests: Sequence[tuple[int, str, Wanted | str]],
    alter: Callable[[Mapping[ConfigResource, Wanted]], Awaitable[Mapping[ConfigResource, ApiError | None]]],
) -> list[ConfigOutcome]:
    """Alter all valid resources in one call of `alter`, and return an outcome for each resource, in order.

    An item of `requests` is refused if its resource type is unknown, if an earlier valid item has the same resource,
    or if the item has an error message instead of a change.
    """
    known = {int(kind) for kind in ConfigResourceType}
    refused: dict[int, str] = {}
    wanted: dict[ConfigResource, Wanted] = {}
    for number, (kind, name, change) in enumerate(requests):
        if kind not in known:
            refused[number] = (
                f"resource type {kind} is invalid; allowed are topics (2), brokers (4) and broker loggers (8)"
            )
        elif isinstance(change, str):
            refused[number] = change
        elif (resource := ConfigResource(ConfigResourceType(kind), name)) in wanted:
            refused[number] = f"{resource.type.name} {name} is in the request twice"
        else:
            wanted[resource] = change
    errors = await alter(wanted)
    return [
        _refused(kind, name, refused[number]) if number in refused else _outcome(kind, name, errors)
        for number, (kind, name, _) in enumerate(requests)
    ]


def _refused(kind: int, name: str, reason: str) -> ConfigOutcome:
    return ConfigOutcome(kind, name, ErrorCode.INVALID_REQUEST, reason)


def _outcome(kind: int, name: str, errors: Mapping[ConfigResource, ApiError | None]) -> ConfigOutcome:
    error = errors[ConfigResource(ConfigResourceType(kind), name)]
    if error is None:
        return ConfigOutcome(kind, name, ErrorCode.NONE, None)
    return ConfigOutcome(kind, name, error.code, error.message)
