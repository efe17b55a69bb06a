"""ApiVersions (18), v0 to v4: what this broker speaks, from the same table that dispatches.

An unsupported version is answered by the dispatcher in the v0 format, so that the client can step down.
"""

import re
from typing import Final

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from barnabas_broker.handlers.exchange import Context
from barnabas_broker.handlers.services import Services
from barnabas_broker.wire.apis import API_SPECS
from barnabas_core.errors import ErrorCode

SOFTWARE_NAME: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
NAMED_SINCE: Final = 3


def handle(services: Services, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Every API with its range; INVALID_REQUEST for a client that gives itself a name that is none (KIP-511)."""
    names = (request.client_software_name, request.client_software_version)
    if context.api_version >= NAMED_SINCE and not all(SOFTWARE_NAME.fullmatch(name) for name in names):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    keys = [
        ApiVersionsResponse.ApiVersion(
            api_key=spec.key, min_version=spec.advertised_min_version, max_version=spec.max_version
        )
        for spec in API_SPECS.values()
    ]
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=keys, throttle_time_ms=0)
