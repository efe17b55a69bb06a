"""The handlers of the APIs in `wire.apis`, by API key.

Message handlers are imported when they are first used, because importing all handlers and messages would take a third
of the broker's start-up time.
"""

import functools
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NamedTuple

from barnabas_broker.handlers import api_versions, fetch, produce
from barnabas_broker.handlers.channel import MessageHandler, RawHandler
from barnabas_broker.handlers.fetch import AuthorizedFetch, answer_follower
from barnabas_broker.handlers.guard import guarded
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.produce import AuthorizedAppender
from barnabas_broker.wire.apis import API_SPECS

RAW_HANDLERS: Final[Mapping[int, RawHandler]] = {
    0: produce.handle,
    1: fetch.handle,
    18: api_versions.handle,
}

AUTHORIZED_RAW_HANDLERS: Final[Mapping[int, RawHandler]] = {
    0: functools.partial(produce.handle, make_appender=AuthorizedAppender),
    1: functools.partial(fetch.handle, make_fetch=AuthorizedFetch, answer_follower=answer_follower),
    18: api_versions.handle,
}
"""The handlers that a broker with an authorizer uses instead of RAW_HANDLERS; Produce and Fetch also check rights."""

MESSAGE_HANDLERS: Final[Mapping[int, str]] = (
    {
        key: re.sub("(?<!^)(?=[A-Z])", "_", spec.name).lower()
        for key, spec in API_SPECS.items()
        if key not in RAW_HANDLERS
    }
    | dict.fromkeys((38, 39, 40, 41), "delegation_tokens")
    | dict.fromkeys((83, 84, 85, 86, 87), "share_group_state")
)
"""The modules of the message handlers in this package, by API key: `ListOffsets` is answered by `list_offsets`."""


@functools.cache
def message_handler(api_key: int) -> MessageHandler:
    """Import and return the handler of an API in MESSAGE_HANDLERS."""
    handler: MessageHandler = import_module(f"{__package__}.{MESSAGE_HANDLERS[api_key]}").handle
    return handler


class Handlers(NamedTuple):
    """The handlers of a broker."""

    raw: Mapping[int, RawHandler]
    message: Callable[[int], MessageHandler]


def handlers_of(environment: HandlerEnvironment) -> Handlers:
    """Return the handlers of a broker; with an authorizer they check rights first."""
    if environment.authorizer is None:
        return Handlers(RAW_HANDLERS, message_handler)
    return Handlers(AUTHORIZED_RAW_HANDLERS, guarded(message_handler))
