"""What ApiVersions promises has a handler."""

import pytest

from barnabas_broker.handlers.table import MESSAGE_HANDLERS, message_handler


@pytest.mark.parametrize("api_key", sorted(MESSAGE_HANDLERS))
def test_a_handler_is_where_the_name_of_its_api_says(api_key: int) -> None:
    assert callable(message_handler(api_key))
