"""Messages that kafka-python does not ship, by its classes and `barnabas_core.definitions`."""

from kafka.protocol.api_message import ApiMessage


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """Of a broker's id."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """What became of it."""
