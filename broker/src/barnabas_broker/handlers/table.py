"""The handlers of the APIs in `wire.framing`, by API key.

Message handlers are imported when they are first used, because importing all handlers and messages would take a third
of the broker's start-up time.

ApiVersions (18), v0 to v5, is answered here: with the APIs and versions that this broker supports, and from v3 on its
features. A v5 request has the cluster id and the node id that the client expects (KIP-1242). An address may have been
given to another broker since the client learned it, as on Kubernetes: the client then gets REBOOTSTRAP_REQUIRED.

Every connection begins with ApiVersions, so the encoded responses are cached. The dispatcher answers a version that is
not supported in the v0 format, so that the client can send a lower version.
"""

import functools
import re
import struct
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final

from barnabas_broker.handlers import fetch, produce
from barnabas_broker.handlers.channel import Channel, MessageHandler, RawHandler
from barnabas_broker.handlers.guard import guarded
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.documents import FEATURES_KEY
from barnabas_broker.metadata.model import SUPPORTED
from barnabas_broker.wire.encoder import api_versions_response, decode_request, encode_response
from barnabas_broker.wire.framing import API_VERSIONS
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_SINCE: Final = 3
"""The first version whose requests have the name of the client software, and whose responses have features."""
ZERO_SINCE: Final = 4
NO_NODE: Final = -1
VERSIONS: Final = 6
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_START: Final = 4
"""The position of the correlation id in the response, after the 4 bytes of the frame size."""


def answer_api_versions(
    environment: HandlerEnvironment,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> None:
    """Respond with every API and its versions, or with an error.

    The error is INVALID_REQUEST for an invalid client name or version (KIP-511), or for a cluster id without a node id
    or the reverse; it is REBOOTSTRAP_REQUIRED if the client expects another cluster or another broker.
    """
    request = decode_request(API_VERSIONS, version, buffer[body_start:end])
    if version < NAMED_SINCE:
        answer = bytearray(_answer(version, (), 0))
    elif (error := _error(environment, request)) is not ErrorCode.NONE:
        answer = bytearray(_refusal(version, error))
    else:
        image = environment.image
        answer = bytearray(_answer(version, tuple(sorted(image.features.items())), image.version(FEATURES_KEY)))
    _CORRELATION_ID.pack_into(answer, _CORRELATION_ID_START, correlation_id)
    channel.answer([answer])


def _is_name(text: str) -> bool:
    return SOFTWARE_NAME.fullmatch(text) is not None


def _error(environment: HandlerEnvironment, request: Any) -> ErrorCode:
    """Return the error code for the client's name and version, and for the broker that the client expects."""
    expected = request.cluster_id, request.node_id
    is_incomplete = (request.cluster_id is None) != (request.node_id == NO_NODE)
    if is_incomplete or not (_is_name(request.client_software_name) and _is_name(request.client_software_version)):
        return ErrorCode.INVALID_REQUEST
    if expected not in ((None, NO_NODE), (environment.image.cluster_id, environment.broker_id)):
        return ErrorCode.REBOOTSTRAP_REQUIRED
    return ErrorCode.NONE


@lru_cache(maxsize=2 * VERSIONS)
def _answer(version: int, finalized: tuple[tuple[str, int], ...], epoch: int) -> bytes:
    """Encode the response.

    Responses before v4 leave out features with a lowest level of 0, which older clients reject (KAFKA-17011).
    """
    response = api_versions_response(ErrorCode.NONE)
    kind = type(response)
    response.supported_features = [
        kind.SupportedFeatureKey(name=name, min_version=levels.lowest, max_version=levels.highest)
        for name, levels in SUPPORTED.items()
        if version >= ZERO_SINCE or levels.lowest > 0
    ]
    response.finalized_features_epoch = max(epoch, 0)
    response.finalized_features = [
        kind.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in finalized
    ]
    return bytes(encode_response(response, version, 0))


@cache
def _refusal(version: int, error: ErrorCode) -> bytes:
    response = message_class("ApiVersionsResponse")(error_code=error)
    return bytes(encode_response(response, version, 0))


RAW_HANDLERS: Final[Mapping[int, RawHandler]] = {
    0: produce.handle,
    1: fetch.handle,
    18: answer_api_versions,
}

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


guarded_handler: Final = guarded(message_handler)
"""The function that takes an API key, and returns the handler of the API, which checks the client's rights first."""
