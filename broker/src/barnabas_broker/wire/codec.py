"""The conversion between messages and bytes for all APIs except Produce and Fetch.

The message classes are in `messages`. The codec of a message and version is built on first use, because most codecs
are never used.
"""

import struct
from typing import Any, Final

from barnabas_broker.wire import schema
from barnabas_broker.wire.apis import API_SPECS
from barnabas_broker.wire.decoder import decoder, steps_decoder
from barnabas_broker.wire.encoder import Encoded, element_encoder, encoder, steps_encoder
from barnabas_broker.wire.messages import message_class
from barnabas_core.fair_turns import InSteps

UNSUPPORTED_VERSION: Final = 35

_SIZE_CORRELATION: Final = struct.Struct(">ii")
_REQUEST_HEADER: Final = struct.Struct(">ihhih")
"""The format of the start of a request: size, API key, version, correlation id, and length of the client id."""
_INT32: Final = struct.Struct(">i")
_SPECS_BY_NAME: Final = {spec.name: spec for spec in API_SPECS.values()}
_SIZE_BYTES: Final = 4


def decode_request(api_key: int, version: int, body: memoryview) -> Any:
    """Return the request as an instance of its class in `messages`. Raises MalformedRequest for an invalid `body`."""
    return decoder(f"{API_SPECS[api_key].name}Request", version)(body)


def decode_in_steps(api_key: int, version: int, body: memoryview) -> InSteps[Any]:
    """Decode a request as `decode_request` does, in steps."""
    return steps_decoder(f"{API_SPECS[api_key].name}Request", version)(body)


def encode_response(message: Any, version: int, correlation_id: int) -> bytearray:
    """Return the frame of a response. The header of ApiVersions responses never has tagged fields (KIP-511)."""
    name = type(message).__name__
    out = _response_header(name, version)
    encoder(name, version)(out, message)
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - _SIZE_BYTES, correlation_id)
    return out


def encode_in_steps(message: Any, version: int, correlation_id: int) -> InSteps[bytearray]:
    """Encode a response as `encode_response` does, in steps."""
    name = type(message).__name__
    out = _response_header(name, version)
    yield from steps_encoder(name, version)(out, message)
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - _SIZE_BYTES, correlation_id)
    return out


def _response_header(name: str, version: int) -> bytearray:
    out = bytearray(_SIZE_CORRELATION.size)
    if schema.message(name).flexible.hold(version) and name != "ApiVersionsResponse":
        out += b"\0"
    return out


def encode_element(message: str, path: tuple[str, ...], version: int, element: Any) -> Encoded:
    """Encode an element of the array at `path` of a message; the result can replace the element in the array."""
    out = bytearray()
    element_encoder(message, path, version)(out, element)
    return Encoded(bytes(out))


def encode_request(message: Any, version: int, correlation_id: int, client_id: str) -> bytearray:
    """Return the frame of a request to another broker."""
    name = type(message).__name__
    spec = _SPECS_BY_NAME[name.removesuffix("Request")]
    client = client_id.encode()
    out = bytearray(_REQUEST_HEADER.pack(0, spec.key, version, correlation_id, len(client)))
    out += client
    if spec.is_flexible(version):
        out += b"\0"
    encoder(name, version)(out, message)
    _INT32.pack_into(out, 0, len(out) - _SIZE_BYTES)
    return out


def decode_response(name: str, version: int, frame: memoryview) -> Any:
    """Return the response of another broker; `frame` does not include the size. Raises MalformedRequest."""
    header_bytes = _SIZE_BYTES + schema.message(name).flexible.hold(version)
    return decoder(name, version)(frame[header_bytes:])


def api_versions_response(error: int) -> Any:
    """Return an ApiVersionsResponse with the supported APIs and versions."""
    response = message_class("ApiVersionsResponse")
    keys = [
        response.ApiVersion(api_key=spec.key, min_version=spec.advertised_min_version, max_version=spec.max_version)
        for spec in API_SPECS.values()
    ]
    return response(error_code=error, api_keys=keys)


def encode_unsupported_api_versions(correlation_id: int) -> bytearray:
    """Return the v0 response to an unsupported version of ApiVersions, so that the client can send a lower version."""
    return encode_response(api_versions_response(UNSUPPORTED_VERSION), 0, correlation_id)
