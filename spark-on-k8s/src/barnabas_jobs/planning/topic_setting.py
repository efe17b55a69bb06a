"""A setting that a topic has, or would have if it was made."""

from enum import IntEnum
from typing import Final, NamedTuple


class Origin(IntEnum):
    """The origin of a value, by the protocol's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    SERVER_PROPERTIES = 4
    DEFAULT = 5

    def __str__(self) -> str:
        return _TEXTS[self]


_TEXTS: Final = {
    Origin.UNKNOWN: "of a place that the brokers do not tell",
    Origin.TOPIC: "the topic's own",
    Origin.BROKER: "of one broker, set while it ran",
    Origin.ALL_BROKERS: "of all brokers, set while they ran",
    Origin.SERVER_PROPERTIES: "of the brokers' server.properties",
    Origin.DEFAULT: "Kafka's default",
}


class TopicSetting(NamedTuple):
    """The value of a config as text, and its origin."""

    value: str
    origin: Origin
