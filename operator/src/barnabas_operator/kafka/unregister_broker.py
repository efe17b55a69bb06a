"""The UnregisterBroker request and response, which kafka-python lacks; `barnabas_core.definitions` has the schemas."""

from typing import Any

from kafka.protocol.api_message import ApiMessage


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that removes the broker with this id from the metadata."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response, with `error_code` and perhaps an `error_message`."""


def unregistration(broker_id: int) -> Any:
    """Return the request that unregisters a broker."""
    make: Any = UnregisterBrokerRequest
    return make(broker_id=broker_id)
