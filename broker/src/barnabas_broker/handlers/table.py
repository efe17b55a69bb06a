"""The handlers by API key; `wire.apis` has their versions, and a test checks that both tables have the same keys.

Message handlers are imported when they are first used, because importing all handlers and messages would take a third
of the broker's start-up time.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NamedTuple

from barnabas_broker.handlers import api_versions, fetch, produce
from barnabas_broker.handlers.api_rights import API_RIGHTS
from barnabas_broker.handlers.authorized_appender import AuthorizedAppender
from barnabas_broker.handlers.authorized_fetch import AuthorizedFetch, answer_follower
from barnabas_broker.handlers.channel import MessageHandler, RawHandler
from barnabas_broker.handlers.guard import guarded
from barnabas_broker.handlers.handler_environment import HandlerEnvironment

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

MESSAGE_HANDLERS: Final[Mapping[int, str]] = {
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    34: "alter_replica_log_dirs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    55: "describe_quorum",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    64: "unregister_broker",
    65: "describe_transactions",
    66: "list_transactions",
    74: "list_config_resources",
    75: "describe_topic_partitions",
}
"""The modules of the message handlers in this package, by API key."""

assert API_RIGHTS.keys() == RAW_HANDLERS.keys() | MESSAGE_HANDLERS.keys(), (
    "API_RIGHTS must have the same API keys as the handlers"
)


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
