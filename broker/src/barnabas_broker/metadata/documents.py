"""Keys of the store and the documents behind them, to JSON and back."""

from collections.abc import Mapping
from typing import Final

import msgspec

from barnabas_broker.metadata.model import (
    BrokerRegistration,
    ClusterDocument,
    ConfigDocument,
    ControllerDocument,
    ProducerIdsDocument,
    TopicDocument,
)

AnyDocument = (
    TopicDocument | BrokerRegistration | ConfigDocument | ClusterDocument | ControllerDocument | ProducerIdsDocument
)

CLUSTER_KEY: Final = "cluster"
CONTROLLER_KEY: Final = "controller"
PRODUCER_IDS_KEY: Final = "producer-ids"
ALL_BROKERS: Final = ""
"""The name, in place of a broker id, of the configs that hold for every broker."""

_DECODERS: Final[Mapping[str, msgspec.json.Decoder[AnyDocument]]] = {
    "topics": msgspec.json.Decoder(TopicDocument),
    "brokers": msgspec.json.Decoder(BrokerRegistration),
    "broker-configs": msgspec.json.Decoder(ConfigDocument),
    CLUSTER_KEY: msgspec.json.Decoder(ClusterDocument),
    CONTROLLER_KEY: msgspec.json.Decoder(ControllerDocument),
    PRODUCER_IDS_KEY: msgspec.json.Decoder(ProducerIdsDocument),
}
_ENCODER: Final = msgspec.json.Encoder()


class MalformedDocument(ValueError):
    """What the store holds under a key is not what belongs there."""


def topic_key(name: str) -> str:
    """Where a topic is."""
    return f"topics/{name}"


def broker_key(broker_id: int) -> str:
    """Where a broker's registration is."""
    return f"brokers/{broker_id}"


def broker_configs_key(broker: str) -> str:
    """Where the dynamic configs of a broker are, or those of all brokers (ALL_BROKERS)."""
    return f"broker-configs/{broker or 'default'}"


def encode(document: AnyDocument) -> bytes:
    """One line of JSON."""
    return _ENCODER.encode(document)


def decode(key: str, value: bytes) -> AnyDocument | None:
    """The document behind `key`; None for a kind of document that this version does not know.

    Raises MalformedDocument.
    """
    decoder = _DECODERS.get(key.partition("/")[0])
    if decoder is None:
        return None
    try:
        return decoder.decode(value)
    except msgspec.MsgspecError as error:
        raise MalformedDocument(f"{key}: {error}") from error
