"""UnregisterBroker, which kafka-python does not have: its message classes over our definitions."""

from typing import Any

from kafka.protocol.api_message import ApiMessage


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The broker with this id leaves the metadata."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """`error_code`, and an `error_message` where there is one."""


def unregistration(broker_id: int) -> Any:
    """The request that unregisters a broker."""
    make: Any = UnregisterBrokerRequest
    return make(broker_id=broker_id)
