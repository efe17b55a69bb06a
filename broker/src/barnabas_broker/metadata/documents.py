"""The documents, which are the values in the metadata store: their keys, and their encoding as JSON."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.model import (
    AclsDocument,
    BrokerRegistration,
    ClientQuotasDocument,
    ClusterDocument,
    ConfigDocument,
    ControllerDocument,
    FeaturesDocument,
    GroupConfigDocument,
    LogEndsDocument,
    PartReference,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
    TopicPartDocument,
)
from barnabas_broker.metadata.unknown_fields import MARK, with_unknown_fields, with_unknown_fields_gathered

AnyDocument = (
    TopicDocument
    | TopicPartDocument
    | TombstoneDocument
    | BrokerRegistration
    | LogEndsDocument
    | ConfigDocument
    | ClusterDocument
    | ControllerDocument
    | ProducerIdsDocument
    | FeaturesDocument
    | AclsDocument
    | ClientQuotasDocument
    | GroupConfigDocument
)

CLUSTER_KEY: Final = "cluster"
CONTROLLER_KEY: Final = "controller"
PRODUCER_IDS_KEY: Final = "producer-ids"
FEATURES_KEY: Final = "features"
CLIENT_QUOTAS_KEY: Final = "client-quotas"
ACLS: Final = "acls/"
"""The prefix of the keys under which ACLs are stored."""
ALL_BROKERS: Final = ""
"""The name that stands for all brokers in place of a broker id."""

_KINDS: Final[Mapping[str, type[AnyDocument]]] = {
    "topics": TopicDocument,
    "partitions": TopicPartDocument,
    "tombstones": TombstoneDocument,
    "brokers": BrokerRegistration,
    "log-ends": LogEndsDocument,
    "broker-configs": ConfigDocument,
    CLUSTER_KEY: ClusterDocument,
    CONTROLLER_KEY: ControllerDocument,
    PRODUCER_IDS_KEY: ProducerIdsDocument,
    FEATURES_KEY: FeaturesDocument,
    "acls": AclsDocument,
    CLIENT_QUOTAS_KEY: ClientQuotasDocument,
    "group-configs": GroupConfigDocument,
}
_DECODERS: Final[Mapping[str, msgspec.json.Decoder[AnyDocument]]] = {
    key: msgspec.json.Decoder(kind) for key, kind in _KINDS.items()
}
_ENCODER: Final = msgspec.json.Encoder()

_MENDED_BY: Final[Mapping[str, str]] = {
    "topics": "restore the topic from the brokers' logs with `barnabas restore-metadata`",
    "partitions": "restore the partitions from the brokers' logs with `barnabas restore-metadata`",
    "tombstones": "mark the topic as deleted with `barnabas forget-topic`",
    "brokers": "the broker with this id replaces the value at its next start",
    "log-ends": "the broker with this id replaces the value when it next reports the end offsets of its logs",
    "broker-configs": "set the configs again with `kafka-configs.sh --alter`",
    "group-configs": "set the configs of the group again with `kafka-configs.sh --alter`",
    "controller": "the next broker that becomes controller writes a new value",
    "producer-ids": "the next allocation of producer ids writes a new value, higher than all allocated ids",
    "features": "set the feature levels again with `kafka-features.sh upgrade`",
    "acls": "add the lost ACLs again with `kafka-acls.sh --add`",
    "client-quotas": "all client quotas are lost; set them again with `kafka-configs.sh --alter`",
    "cluster": "a broker that has the cluster id in meta.properties replaces the value at its next start",
}
"""The advice on how to replace an unreadable document, by the kind of its key."""


class MalformedDocument(ValueError):
    """The error that a value in the metadata store cannot be decoded."""


def topic_key(name: str) -> str:
    """Return the key of a topic's TopicDocument.

    Further partitions of a large topic are stored under the keys that `topic_part_key` returns.
    """
    return f"topics/{name}"


def topic_part_key(name: str, part: PartReference) -> str:
    """Return the key of a topic part, which is a metadata object with some of the partitions of a large topic."""
    return f"partitions/{name}/{part.first}-{part.part_id}"


def tombstone_key(topic_id: UUID) -> str:
    """Return the key of a topic's tombstone."""
    return f"tombstones/{topic_id.hex}"


def broker_key(broker_id: int) -> str:
    """Return the key of a broker's registration."""
    return f"brokers/{broker_id}"


def log_ends_key(broker_id: int, part: int) -> str:
    """Return the key of one part of a broker's log ends, which are split over several keys of the metadata store."""
    return f"log-ends/{broker_id}/{part}"


def broker_configs_key(broker: str) -> str:
    """Return the key of the dynamic configs of a broker, or of all brokers (ALL_BROKERS)."""
    return f"broker-configs/{broker or 'default'}"


def acls_key(resource_type: str, pattern_type: str, name: str) -> str:
    """Return the key of the ACLs of a resource pattern.

    The key has a hash of the resource name, because the name may have characters that keys may not have.
    """
    return f"{ACLS}{resource_type.lower()}-{pattern_type.lower()}/{_hash(name)}"


def group_configs_key(group: str) -> str:
    """Return the key of a group's configs, with a hash of its name, which may have any characters."""
    return f"group-configs/{_hash(group)}"


def _hash(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:40]


def log_ends_owner(key: str) -> int:
    """Return the id of the broker whose log ends are stored under `key`."""
    return int(key.split("/")[1])


def encode(document: AnyDocument) -> bytes:
    """Return the metadata object as one line of JSON, including fields that this broker version does not know."""
    value = _ENCODER.encode(document)
    return with_unknown_fields(value) if MARK in value else value


def decode(key: str, value: bytes) -> AnyDocument | None:
    """Return the decoded metadata object under `key`, or None if this broker version does not know this kind of key.

    Raises MalformedDocument if the value cannot be decoded.
    """
    kind = key.partition("/")[0]
    decoder = _DECODERS.get(kind)
    if decoder is None:
        return None
    try:
        try:
            return decoder.decode(value)
        except msgspec.ValidationError:  # A newer version may have added fields; keep them in `unknown_fields`.
            return decoder.decode(with_unknown_fields_gathered(value, _KINDS[kind]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedDocument(f"{key}: {error}") from error


def decode_if_readable(key: str, value: bytes) -> AnyDocument | None:
    """Decode a value of the metadata store; return None if the value is unreadable or of an unknown kind."""
    try:
        return decode(key, value)
    except MalformedDocument:
        return None


def what_to_do(key: str) -> str:
    """Return what an administrator should do about an unreadable value that no running broker has in memory."""
    return _MENDED_BY[key.partition("/")[0]]
