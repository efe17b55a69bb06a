"""Messages that kafka-python does not ship, by its classes and `barnabas_core.definitions`."""

from kafka.protocol.api_message import ApiMessage


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to unregister a broker."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response to that request."""
