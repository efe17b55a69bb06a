"""Check the rights in `api_rights` before a handler runs.

A request is refused as a whole, or only the topics, groups or other resources in it that the client may not access.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from typing import Any, NamedTuple
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
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, at_once


def guarded(message_handler: Callable[[int], MessageHandler]) -> Callable[[int], MessageHandler]:
    """Return a function that takes an API key, and returns a handler that checks the client's rights first."""

    @functools.cache
    def guarded_handler(api_key: int) -> MessageHandler:
        handler, row = message_handler(api_key), API_RIGHTS[api_key]
        return _Guard(api_key, row, handler) if row.needs else handler

    return guarded_handler


class _Checked(NamedTuple):
    """The parts of a response that the guard makes."""

    response: Any = None
    """The response to a request whose handler is not called; None for other requests."""
    name: str = ""
    refused: Sequence[Any] = ()
    """The elements to add to the response's array `name`."""


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
        of_request = (each for each in needs if not each.array)
        code = _code(rights, of_request, request, request, environment)
        of_elements = [each for each in needs if each.array]
        if code:
            steps = self._refuse(request, code, context.api_version)
        elif of_elements:
            steps = self._check(environment, rights, of_elements, request)
        else:
            return self._handler(environment, context, request)
        if context.turn is None:
            return self._answer(environment, context, request, at_once(steps))
        return self._answer_later(environment, context, request, context.turn.run(steps))

    def _refuse(self, request: Any, code: ErrorCode, version: int) -> InSteps[_Checked]:
        return _Checked((yield from self._refusals.of_all(request, code, version)))

    async def _answer_later(
        self, environment: HandlerEnvironment, context: RequestContext, request: Any, checking: Awaitable[_Checked]
    ) -> Any:
        response = self._answer(environment, context, request, await checking)
        return await response if isawaitable(response) else response

    def _answer(
        self, environment: HandlerEnvironment, context: RequestContext, request: Any, checked: _Checked
    ) -> Any | Awaitable[Any]:
        response = checked.response
        if response is None:
            response = self._handler(environment, context, request)
        return with_refused(response, checked.name, checked.refused) if checked.refused else response

    def _check(
        self, environment: HandlerEnvironment, rights: Rights, needs: Sequence[Need], request: Any
    ) -> InSteps[_Checked]:
        """Return what is refused, in steps, and leave only the allowed elements in the request."""
        array, allowed, refused = needs[0].array, [], []
        for number, element in enumerate(getattr(request, array) or ()):
            code = _code(rights, needs, request, element, environment)
            if code:
                refused.append((element, code))
            else:
                allowed.append(element)
            if number % STEP_ELEMENTS == 0:
                yield 0
        if not refused:
            return _Checked()
        name, answers = yield from self._refusals.of_elements(array, refused)
        setattr(request, array, allowed)
        return _Checked(None if allowed else self._refusals.empty(), name, answers)


def with_refused(response: Any | Awaitable[Any], name: str, refused: Sequence[Any]) -> Any | Awaitable[Any]:
    """Return the response, or an awaitable of it, with refused elements at the end of its array `name`."""
    return _later(response, name, refused) if isawaitable(response) else _with(response, name, refused)


async def _later(response: Awaitable[Any], name: str, refused: Sequence[Any]) -> Any:
    return _with(await response, name, refused)


def _with(response: Any, name: str, refused: Sequence[Any]) -> Any:
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
