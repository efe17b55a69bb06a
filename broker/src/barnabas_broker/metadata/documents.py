"""The documents, which are the values in the metadata store: their keys, and their encoding as JSON.

Fields of stored metadata that only a newer broker version knows are preserved. Decoding gathers the unknown fields of
an object in the field `unknown_fields`, and encoding writes them back. Objects without unknown fields cost nothing.

A topic has a topic document, and a topic part for each further 100 partitions. A change of one partition therefore
writes a small document. The documents of a topic may be written one after the other, because each partition is in
exactly one document and does not depend on other partitions. The topic document (`head`) alone decides which parts
belong to the topic. To create or extend a topic, new parts are written first, under keys that no other writer uses, and
then the topic document. If the topic document is not written, no topic refers to the parts, and the controller removes
them later.
"""

import functools
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
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
    Extensible,
    FeaturesDocument,
    GroupConfigDocument,
    LogEndsDocument,
    PartitionState,
    PartReference,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
    TopicPartDocument,
)

_FIELD: Final = "unknown_fields"
MARK: Final = f'"{_FIELD}":'.encode()
"""The text by which encoded JSON with unknown fields is recognized; an ordinary string may contain this text, too."""

_Object = dict[str, object]


def with_unknown_fields_gathered(value: bytes, kind: type[Extensible]) -> bytes:
    """Return the JSON object `value` with its unknown fields gathered in one field. Raises msgspec.MsgspecError."""
    found = msgspec.json.decode(value, type=_Object)
    partitions = found.get("partitions")
    if kind in (TopicDocument, TopicPartDocument) and isinstance(partitions, list):
        for partition in partitions:
            if isinstance(partition, dict):
                _gather(partition, PartitionState)
    _gather(found, kind)
    return msgspec.json.encode(found)


def _gather(found: _Object, kind: type[Extensible]) -> None:
    unknown = {name: found.pop(name) for name in found.keys() - _known(kind)}
    if unknown:
        found[_FIELD] = msgspec.json.encode(unknown, order="sorted").decode()


@functools.cache
def _known(kind: type[Extensible]) -> frozenset[str]:
    """Return the names of the fields of `kind` in JSON, cached because msgspec computes them again at each call."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind)) - {_FIELD}


def with_unknown_fields(value: bytes) -> bytes:
    """Return the JSON of a document with its unknown fields restored."""
    found = msgspec.json.decode(value, type=_Object)
    partitions = found.get("partitions")
    for each in (found, *(partitions if isinstance(partitions, list) else ())):
        each.update(msgspec.json.decode(each.pop(_FIELD, "{}"), type=_Object))
    return msgspec.json.encode(found)


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


PARTITIONS_MAX: Final = 100
"""The maximum number of partitions in one stored document; a full document has 4 to 7 kB."""

Stored = Callable[[str], AnyDocument | None]
"""A function that returns the metadata object that this broker last saw under a key of the metadata store, or None."""


def laid_out(topic: TopicDocument, *, splits: bool, partitions_max: int = PARTITIONS_MAX) -> TopicDocument:
    """Return the topic with references to its topic parts, the documents for its later partitions.

    The topic document has the first partitions. New documents have at most `partitions_max` partitions. If the topic
    already has topic parts, added partitions go into new topic parts, and all other partitions stay where they are. The
    caller has to store new topic parts. If `splits` is False, the topic has no topic parts, and the topic document has
    all partitions.
    """
    if not splits:
        return topic if not topic.parts else msgspec.structs.replace(topic, parts=())
    begin = _covered(topic) if topic.parts else partitions_max
    added = tuple(_new_parts(topic, begin, partitions_max))
    return topic if not added else msgspec.structs.replace(topic, parts=topic.parts + added)


def _new_parts(topic: TopicDocument, begin: int, partitions_max: int) -> Iterator[PartReference]:
    for first in range(begin, len(topic.partitions), partitions_max):
        states = topic.partitions[first : first + partitions_max]
        content = encode(TopicPartDocument(topic.name, topic.topic_id, first, states))
        yield PartReference(first, len(states), sha256(content).hexdigest()[:16])


def documents_of(topic: TopicDocument, stored: Stored) -> dict[str, TopicDocument | TopicPartDocument]:
    """Return the documents to store for a topic, by key: first every TopicPartDocument, then the TopicDocument."""
    found: dict[str, TopicDocument | TopicPartDocument] = {}
    for part in topic.parts:
        key, states = topic_part_key(topic.name, part), topic.partitions[part.first : part.first + part.count]
        known = stored(key)
        found[key] = (
            msgspec.structs.replace(known, partitions=states)  # Fields of a newer version are kept.
            if isinstance(known, TopicPartDocument)
            else TopicPartDocument(topic.name, topic.topic_id, part.first, states)
        )
    found[topic_key(topic.name)] = head_of(topic)
    return found


def head_of(topic: TopicDocument) -> TopicDocument:
    """Return the TopicDocument as it is stored: without the partitions that a TopicPartDocument contains."""
    if not topic.parts:
        return topic
    return msgspec.structs.replace(topic, partitions=topic.partitions[: topic.parts[0].first])


def pieces_of(topic: TopicDocument) -> list[range]:
    """Return the ranges of partitions that are stored under one key each, in the order of the partitions.

    The first range is stored under the topic's own key. Partitions that have no key yet form the last range.
    """
    begins = [0, *(part.first for part in topic.parts), *([_covered(topic)] if topic.parts else ())]
    ends = [*begins[1:], len(topic.partitions)]
    return [range(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]


def _covered(topic: TopicDocument) -> int:
    """Return the partition number that follows the last number in `topic.parts`."""
    return topic.parts[-1].first + topic.parts[-1].count


def part_with(topic: TopicDocument, numbers: Collection[int], stored: Stored) -> str | None:
    """Return the key of the topic part (a document with further partitions of a topic) that has all of `numbers`.

    Return None if the store has no such topic part.
    """
    first, last = min(numbers, default=0), max(numbers, default=0)
    for part in topic.parts:
        if part.first <= first and last < part.first + part.count:
            key = topic_part_key(topic.name, part)
            return key if isinstance(stored(key), TopicPartDocument) else None
    return None


def key_of(topic: TopicDocument, partition: int) -> str:
    """Return the key in the metadata store under which the state of a partition is stored."""
    number = bisect_right(topic.parts, partition, key=lambda part: part.first) - 1
    return topic_key(topic.name) if number < 0 else topic_part_key(topic.name, topic.parts[number])


def part_keys(topic: TopicDocument) -> list[str]:
    """Return the keys of the TopicPartDocuments to which a large topic refers in `parts`."""
    return [topic_part_key(topic.name, part) for part in topic.parts]


def joined(head: TopicDocument, stored: Stored, known: TopicDocument | None) -> tuple[TopicDocument | None, bool]:
    """Assemble a topic from its topic document `head` and its topic parts; also return True if no part is missing.

    The partitions of a missing part come from `known`, the last known state of the topic. If `known` lacks these
    partitions, too, None is returned instead of the topic.
    """
    if not head.parts:
        return head, True
    pieces, is_complete = [], True
    for first, count, states in _stored_pieces(head, stored):
        if len(states) < count:
            is_complete = False
            states = known.partitions[first : first + count] if known is not None else ()
        if len(states) < count:
            return None, False
        pieces.append(states[:count])
    partitions = tuple(state for piece in pieces for state in piece)
    return msgspec.structs.replace(head, partitions=partitions), is_complete


def _stored_pieces(head: TopicDocument, stored: Stored) -> Iterator[tuple[int, int, tuple[PartitionState, ...]]]:
    """Yield the first partition, the number of partitions, and the partition states of each document of a topic.

    The documents are the topic document and the topic parts. If a topic part is missing in the store, its states are
    empty.
    """
    yield 0, head.parts[0].first, head.partitions
    for part in head.parts:
        document = stored(topic_part_key(head.name, part))
        yield part.first, part.count, document.partitions if isinstance(document, TopicPartDocument) else ()


def with_part(topic: TopicDocument, part: TopicPartDocument) -> TopicDocument:
    """Return the topic, with the partition states in `part` in place of the earlier states of these partitions.

    If `part` belongs to another topic, return the topic unchanged.
    """
    if part.topic_id != topic.topic_id:
        return topic
    end = part.first + len(part.partitions)
    partitions = topic.partitions[: part.first] + part.partitions + topic.partitions[end:]
    return msgspec.structs.replace(topic, partitions=partitions)


def changed(wanted: Mapping[str, TopicDocument | TopicPartDocument], stored: Stored) -> tuple[list[str], list[str]]:
    """Return the keys of new topic parts, and the keys of the other changed documents of the topic.

    New topic parts must be written first, so that the topic document never refers to a missing topic part.
    """
    differing = [key for key, document in wanted.items() if stored(key) != document]
    is_new = {key for key in differing if isinstance(wanted[key], TopicPartDocument) and stored(key) is None}
    return [key for key in differing if key in is_new], [key for key in differing if key not in is_new]


class ImageChange(msgspec.Struct):
    """The differences between two states of the image. Listeners must not change them.

    A topic that was deleted and created again is in both `deleted` and `created`.
    """

    created: tuple[TopicDocument, ...] = ()
    changed: tuple[TopicDocument, ...] = ()
    deleted: tuple[TopicDocument, ...] = ()
    brokers: set[int] = msgspec.field(default_factory=set)
    seen_alive: set[int] = msgspec.field(default_factory=set)
    """The changed brokers that were alive (neither fenced nor shutting down) at some moment during the change.

    A listing of the store does not show intermediate states. After a listing, `seen_alive` therefore has all changed
    brokers.
    """
    configs: set[str] = msgspec.field(default_factory=set)
    """The ids, as text, of brokers whose dynamic configs changed; "" stands for the defaults of all brokers."""
    acls: set[str] = msgspec.field(default_factory=set)
    """The keys of the stored ACLs that changed."""
    controller: bool = False
    """True if a broker became the controller, even if it is the same broker as before."""
    quotas: bool = False
    """True if client quotas changed."""
    tombstones: set[UUID] = msgspec.field(default_factory=set)
    """The ids of topics for which a tombstone, the record of their deletion, was stored."""
    lost: bool = False
    """True if the store has lost a metadata document, so that a broker has to write the document again."""


class Pending(msgspec.Struct):
    """The objects that a batch of changes touches; `topics` has the topics as they were before the batch."""

    change: ImageChange = msgspec.field(default_factory=ImageChange)
    """The differences that the batch has made so far, without the topics, which `finished` adds."""
    topics: dict[str, TopicDocument | None] = msgspec.field(default_factory=dict)
    touched: dict[str, None] = msgspec.field(default_factory=dict)
    """The names of topics whose stored metadata or tombstone changed and has not been processed yet."""
    touched_keys: set[str] = msgspec.field(default_factory=set)
    """The keys of TopicDocuments and TopicPartDocuments that have changed and have not been processed yet."""

    def finished(self, topics: Mapping[str, TopicDocument]) -> ImageChange:
        """Return what the batch of changes altered; `topics` has the image's topics after the batch."""
        pairs, change = [(before, topics.get(name)) for name, before in self.topics.items()], self.change
        change.created = tuple(now for before, now in pairs if now is not None and not _same_topic(before, now))
        change.changed = tuple(now for before, now in pairs if now is not None and _same_topic(before, now))
        change.deleted = tuple(was for was, now in pairs if was is not None and not _same_topic(was, now))
        return change


def _same_topic(before: TopicDocument | None, now: TopicDocument | None) -> bool:
    return before is not None and now is not None and before.topic_id == now.topic_id


NO_CONTROLLER: Final = -1


class ShownDocuments:
    """The brokers, configs, ACLs and other metadata in the image, which only the image itself changes."""

    def __init__(self) -> None:
        self.cluster_id = ""
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.broker_configs: dict[str, Mapping[str, str]] = {}
        self.group_configs: dict[str, Mapping[str, str]] = {}
        """The configs of groups that have any, by the names of the groups."""
        self.tombstones: dict[UUID, TombstoneDocument] = {}
        self.next_producer_id = 0
        """The first producer id that no broker has allocated yet, as last read from the store."""
        self.log_ends: dict[str, LogEndsDocument] = {}
        """The log end offsets that brokers have reported, by metadata key. Listeners are not notified of changes."""
        self.acls: dict[str, AclsDocument] = {}
        """The ACLs by their key in the metadata store."""

    def show(self, key: str, document: AnyDocument, pending: Pending) -> None:
        """Add stored metadata to the image, or replace its previous state, and record the change in `pending`."""
        match document:
            case BrokerRegistration():
                self.brokers[document.broker_id] = document
                pending.change.brokers.add(document.broker_id)
                if not (document.fenced or document.is_shutting_down):
                    pending.change.seen_alive.add(document.broker_id)
            case LogEndsDocument():
                self.log_ends[key] = document
            case ConfigDocument() | GroupConfigDocument():
                self._show_configs(key, document, pending)
            case ClusterDocument():
                self.cluster_id = document.cluster_id
            case ControllerDocument():
                self.controller_id, self.controller_epoch = document.broker_id, document.epoch
                pending.change.controller = True
            case ProducerIdsDocument():
                self.next_producer_id = document.next_producer_id
            case TombstoneDocument():
                self.tombstones[document.topic_id] = document
                pending.change.tombstones.add(document.topic_id)
                pending.touched[document.name] = None
            case AclsDocument():
                self.acls[key] = document
                pending.change.acls.add(key)

    def _show_configs(self, key: str, document: ConfigDocument | GroupConfigDocument, pending: Pending) -> None:
        if isinstance(document, GroupConfigDocument):
            self.group_configs[document.group] = document.configs
        else:
            self.broker_configs[_config_owner(key)] = document.configs
            pending.change.configs.add(_config_owner(key))

    def hide(self, key: str, document: AnyDocument, pending: Pending) -> None:
        """Remove a deleted document from the image, and record the change in `pending`."""
        match document:
            case BrokerRegistration(broker_id=broker_id):
                self.brokers.pop(broker_id, None)
                pending.change.brokers.add(broker_id)
            case TombstoneDocument(topic_id=topic_id):
                self.tombstones.pop(topic_id, None)
            case GroupConfigDocument(group=group):
                self.group_configs.pop(group, None)
            case AclsDocument():
                self.acls.pop(key, None)
                pending.change.acls.add(key)


def _config_owner(key: str) -> str:
    return ALL_BROKERS if key == broker_configs_key(ALL_BROKERS) else key.partition("/")[2]
