"""Every API that ApiVersions lists has a handler."""

import pytest

from barnabas_broker.handlers.table import MESSAGE_HANDLERS, message_handler


@pytest.mark.parametrize("api_key", sorted(MESSAGE_HANDLERS))
def test_every_message_api_has_a_handler(api_key: int) -> None:
    assert callable(message_handler(api_key))
