"""ApiVersions (18), v0 to v4: what this broker speaks, from the same table that dispatches.

Every connection begins with it, so the answers are encoded once. An unsupported version is answered by the dispatcher
in the v0 format, so that the client can step down.
"""

import re
import struct
from functools import cache
from typing import Final

from barnabas_broker.handlers.exchange import Channel
from barnabas_broker.handlers.services import Services
from barnabas_broker.wire.apis import API_VERSIONS
from barnabas_broker.wire.codec import api_versions_response, decode_request, encode_response
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_SINCE: Final = 3
_CORRELATION_ID: Final = struct.Struct(">i")
_CORRELATION_ID_START: Final = 4
"""Behind the size of the frame."""


def handle(
    services: Services,
    channel: Channel,
    version: int,
    correlation_id: int,
    buffer: memoryview,
    body_start: int,
    end: int,
) -> None:
    """Every API with its range; INVALID_REQUEST for a client that gives itself a name that is none (KIP-511)."""
    request = decode_request(API_VERSIONS, version, buffer[body_start:end])
    names = (request.client_software_name, request.client_software_version)
    refused = version >= NAMED_SINCE and not all(SOFTWARE_NAME.fullmatch(name) for name in names)
    answer = bytearray(_refusal(version) if refused else _answer(version))
    _CORRELATION_ID.pack_into(answer, _CORRELATION_ID_START, correlation_id)
    channel.respond([answer])


@cache
def _answer(version: int) -> bytes:
    return bytes(encode_response(api_versions_response(ErrorCode.NONE), version, 0))


@cache
def _refusal(version: int) -> bytes:
    response = message_class("ApiVersionsResponse")(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    return bytes(encode_response(response, version, 0))
