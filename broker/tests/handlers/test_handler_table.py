"""What ApiVersions promises and what is dispatched are the same."""

import pytest

from barnabas_broker.handlers.table import MESSAGE_HANDLERS, RAW_HANDLERS, message_handler
from barnabas_broker.wire.apis import API_SPECS


def test_every_api_that_is_advertised_has_one_handler_and_no_other_has() -> None:
    assert sorted([*RAW_HANDLERS, *MESSAGE_HANDLERS]) == sorted(API_SPECS)


@pytest.mark.parametrize("api_key", sorted(MESSAGE_HANDLERS))
def test_a_handler_is_where_the_table_says(api_key: int) -> None:
    assert callable(message_handler(api_key))
