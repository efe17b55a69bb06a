"""Every API that ApiVersions lists has a handler."""

import pytest

from barnabas_broker.handlers.table import RAW_HANDLERS, message_handler
from barnabas_broker.wire.framing import API_SPECS


@pytest.mark.parametrize("api_key", sorted(API_SPECS.keys() - RAW_HANDLERS.keys()))
def test_every_message_api_has_a_handler(api_key: int) -> None:
    assert callable(message_handler(api_key))
