"""The handlers of the APIs in `wire.apis`, by API key.

Message handlers are imported when they are first used, because importing all handlers and messages would take a third
of the broker's start-up time.
"""

import functools
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, NamedTuple

from barnabas_broker.handlers import api_versions, fetch, produce
from barnabas_broker.handlers.channel import MessageHandler, RawHandler
from barnabas_broker.handlers.fetch import AuthorizedFetch, answer_follower
from barnabas_broker.handlers.guard import guarded
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.produce import AuthorizedAppender

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

MODULES: Final[Mapping[str, Mapping[int, str]]] = {
    "metadata": {3: "metadata", 75: "describe_topic_partitions"},
    "cluster": {
        10: "find_coordinator",
        48: "describe_client_quotas",
        49: "alter_client_quotas",
        55: "describe_quorum",
        57: "update_features",
        60: "describe_cluster",
        64: "unregister_broker",
    },
    "users": {
        17: "sasl_handshake",
        29: "describe_acls",
        30: "create_acls",
        31: "delete_acls",
        36: "sasl_authenticate",
        **dict.fromkeys((38, 39, 40, 41), "delegation_token"),
        50: "describe_user_scram_credentials",
        51: "alter_user_scram_credentials",
    },
    "topics": {19: "create_topics", 20: "delete_topics", 37: "create_partitions"},
    "configs": {
        32: "describe_configs",
        33: "alter_configs",
        44: "incremental_alter_configs",
        74: "list_config_resources",
    },
    "replicas": {
        34: "alter_replica_log_dirs",
        35: "describe_log_dirs",
        43: "elect_leaders",
        45: "alter_partition_reassignments",
        46: "list_partition_reassignments",
    },
    "partition_offsets": {2: "list_offsets", 21: "delete_records", 23: "offset_for_leader_epoch"},
    "classic_groups": {
        11: "join_group",
        12: "heartbeat",
        13: "leave_group",
        14: "sync_group",
        15: "describe_groups",
        16: "list_groups",
        42: "delete_groups",
    },
    "group_offsets": {8: "offset_commit", 9: "offset_fetch", 47: "offset_delete"},
    "modern_groups": {
        68: "consumer_group_heartbeat",
        69: "consumer_group_describe",
        76: "share_group_heartbeat",
        77: "share_group_describe",
    },
    "share_group_offsets": {
        **dict.fromkeys((83, 84, 85, 86, 87), "share_group_state"),
        90: "describe_share_group_offsets",
        91: "alter_share_group_offsets",
        92: "delete_share_group_offsets",
    },
    "share_requests": {79: "share_acknowledge"},
    "share_fetch": {78: "share_fetch"},
    "transactions": {
        22: "init_producer_id",
        24: "add_partitions_to_txn",
        25: "add_offsets_to_txn",
        26: "end_txn",
        27: "write_txn_markers",
        28: "txn_offset_commit",
    },
    "transaction_states": {
        61: "describe_producers",
        65: "describe_transactions",
        66: "list_transactions",
    },
}
"""The functions that handle messages, by API key, in each module of this package."""

MESSAGE_HANDLERS: Final[Mapping[int, tuple[str, str]]] = {
    key: (module, name) for module, names in MODULES.items() for key, name in names.items()
}
"""The module and the function that handle the messages of an API, by API key."""


@functools.cache
def message_handler(api_key: int) -> MessageHandler:
    """Import and return the handler of an API in MESSAGE_HANDLERS."""
    module, name = MESSAGE_HANDLERS[api_key]
    handler: MessageHandler = getattr(import_module(f"{__package__}.{module}"), name)
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
