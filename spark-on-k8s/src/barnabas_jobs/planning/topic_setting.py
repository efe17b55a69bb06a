"""The configs of an existing topic, or those that the brokers would give a new topic."""

from enum import IntEnum
from typing import Final, NamedTuple


class Origin(IntEnum):
    """The origin of a config value, with the numbers of the Kafka protocol."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    SERVER_PROPERTIES = 4
    DEFAULT = 5

    @classmethod
    def _missing_(cls, _: object) -> "Origin":
        """Return UNKNOWN for the other config sources of newer brokers, as Kafka's own clients do."""
        return cls.UNKNOWN

    def __str__(self) -> str:
        return _TEXTS[self]


_TEXTS: Final = {
    Origin.UNKNOWN: "from a config source that the brokers do not report",
    Origin.TOPIC: "the topic's own",
    Origin.BROKER: "a dynamic config of one broker",
    Origin.ALL_BROKERS: "a dynamic default of all brokers",
    Origin.SERVER_PROPERTIES: "from the brokers' server.properties",
    Origin.DEFAULT: "Kafka's default",
}


class TopicSetting(NamedTuple):
    """The value of a config as text, and its origin."""

    value: str
    origin: Origin
