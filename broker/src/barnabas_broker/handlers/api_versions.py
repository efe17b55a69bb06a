"""ApiVersions (18), v0 to v5: the APIs and versions that this broker supports, and from v3 on its features.

A v5 request has the cluster id and the node id that the client expects (KIP-1242). An address may have been given to
another broker since the client learned it, as on Kubernetes: the client then gets REBOOTSTRAP_REQUIRED.

Every connection begins with ApiVersions, so the encoded responses are cached. The dispatcher answers a version that is
not supported in the v0 format, so that the client can send a lower version.
"""

import re
import struct
from functools import cache, lru_cache
from typing import Any, Final

from barnabas_broker.handlers.channel import Channel
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.documents import FEATURES_KEY
from barnabas_broker.metadata.features import SUPPORTED
from barnabas_broker.wire.apis import API_VERSIONS
from barnabas_broker.wire.encoder import api_versions_response, decode_request, encode_response
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


def handle(
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
    channel.respond([answer])


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
