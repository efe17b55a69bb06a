"""Check the rights in `api_rights` before a handler runs.

A request is refused as a whole, or only the topics, groups or other resources in it that the client may not access.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any
from uuid import UUID

from barnabas_broker.handlers.api_rights import API_RIGHTS, ApiRights, Need
from barnabas_broker.handlers.channel import MessageHandler, RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.refusals import Refusals
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.apis import API_SPECS
from barnabas_core.acls import CLUSTER_NAME, ResourceType
from barnabas_core.errors import ErrorCode


def guarded(message_handler: Callable[[int], MessageHandler]) -> Callable[[int], MessageHandler]:
    """Return a function that takes an API key, and returns a handler that checks the client's rights first."""

    @functools.cache
    def guarded_handler(api_key: int) -> MessageHandler:
        handler, row = message_handler(api_key), API_RIGHTS[api_key]
        return _Guard(api_key, row, handler) if row.needs else handler

    return guarded_handler


class _Guard:
    def __init__(self, api_key: int, row: ApiRights, handler: MessageHandler) -> None:
        self._row = row
        self._handler = handler
        self._refusals = Refusals(API_SPECS[api_key].name, row.answers, row.refused, names_each=row.names_each)

    def __call__(self, environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any | Awaitable[Any]:
        """Refuse the request, or the elements of its array (such as topics) for which the client lacks a right.

        The handler then gets the request with the remaining elements only.
        """
        rights = rights_of(environment, context.client)
        needs = [each for each in self._row.needs if each.first_version <= context.api_version <= each.last_version]
        for need in needs:
            if not need.array and not _has(rights, need, request, request, environment):
                return self._refusals.of_all(request, need.code, context.api_version)
        array = next((each.array for each in needs if each.array), "")
        if not array:
            return self._handler(environment, context, request)
        of_elements = [each for each in needs if each.array]
        elements = getattr(request, array) or ()
        codes = [_code(rights, of_elements, request, element, environment) for element in elements]
        if not any(codes):
            return self._handler(environment, context, request)
        refused = [(element, code) for element, code in zip(elements, codes, strict=True) if code]
        name, answers = self._refusals.of_elements(array, refused)
        allowed = [element for element, code in zip(elements, codes, strict=True) if not code]
        if not allowed:
            return with_refused(self._refusals.empty(), name, answers)
        setattr(request, array, allowed)
        return with_refused(self._handler(environment, context, request), name, answers)


def with_refused(response: Any | Awaitable[Any], name: str, refused: list[Any]) -> Any | Awaitable[Any]:
    """Return the response, or an awaitable of it, with refused elements at the end of its array `name`."""
    return _later(response, name, refused) if isawaitable(response) else _with(response, name, refused)


async def _later(response: Awaitable[Any], name: str, refused: list[Any]) -> Any:
    return _with(await response, name, refused)


def _with(response: Any, name: str, refused: list[Any]) -> Any:
    setattr(response, name, [*getattr(response, name), *refused])
    return response


def _code(
    rights: Rights, needs: Iterable[Need], request: Any, element: Any, environment: HandlerEnvironment
) -> ErrorCode:
    """Return the error code for an element such as a topic; NONE if the client has all rights that it needs."""
    return next((each.code for each in needs if not _has(rights, each, request, element, environment)), ErrorCode.NONE)


def _has(rights: Rights, need: Need, request: Any, element: Any, environment: HandlerEnvironment) -> bool:
    if need.when is not None:
        field, values = need.when
        if getattr(element, field, None) not in values and getattr(request, field, None) not in values:
            return True
    name = _resource(need, element, environment)
    if name is None:
        return True
    instead = need.or_on_cluster
    if instead is not None and rights.may_see(instead, ResourceType.CLUSTER):
        return True
    return rights.may(need.operation, need.resource_type, name)


def _resource(need: Need, element: Any, environment: HandlerEnvironment) -> str | None:
    """Return the name of the resource to check; None for an unknown topic id, which the handler refuses itself."""
    if need.resource_type is ResourceType.CLUSTER:
        return CLUSTER_NAME
    if need.field.endswith("[]"):
        return str(element)
    name = getattr(element, need.field.rpartition(".")[2])
    topic_id = getattr(element, "topic_id", None)
    if not name and isinstance(topic_id, UUID):
        return environment.image.topic_name(topic_id)
    return str(name or "")
