"""What ApiVersions promises and what is dispatched are the same."""

from barnabas_broker.handlers.table import MESSAGE_HANDLERS, RAW_HANDLERS
from barnabas_broker.wire.apis import API_SPECS


def test_every_api_that_is_advertised_has_one_handler_and_no_other_has() -> None:
    assert sorted([*RAW_HANDLERS, *MESSAGE_HANDLERS]) == sorted(API_SPECS)
