"""One object for each document: its name, its content, kubectl's columns, and the bodies of requests. No IO.

`crds/statedocuments.internal.barnabas.dev.yaml` is the definition of these objects.
"""

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import MalformedDocument, decode
from barnabas_broker.metadata.model import (
    NO_LEADER,
    BrokerRegistration,
    PartitionState,
    TopicDocument,
    TopicPartDocument,
)
from barnabas_broker.metadata.store.metadata_store import Document

GROUP: Final = "internal.barnabas.dev"
VERSION: Final = "v1"
PLURAL: Final = "statedocuments"
KIND: Final = "StateDocument"
CLUSTER_LABEL: Final = "barnabas.dev/cluster"
MARK_KEY: Final = "mark"
"""The key of the mark: no document, but an object that is written to learn a revision, and that every watch reports."""
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"

SLUG_LENGTH_MAX: Final = 100
_PLAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,98}[a-z0-9])?")
_NOT_PLAIN: Final = re.compile(r"[^a-z0-9]+")


class Columns(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns that kubectl prints beside the key."""

    state: str = ""
    partitions: int | None = None
    leaders: str = ""
    isr: str = ""


class Spec(msgspec.Struct, frozen=True):
    """A document under its key, as it is, and a summary of it."""

    key: str
    document: msgspec.Raw
    summary: Columns = Columns()


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The part of an object's metadata that is read and written."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ListMetadata(msgspec.Struct, rename="camel"):
    """The revision that a list is of."""

    resource_version: str


class StateObject(msgspec.Struct, frozen=True, rename="camel"):
    """A custom resource that holds a document."""

    metadata: Metadata
    spec: Spec
    api_version: str = f"{GROUP}/{VERSION}"
    kind: str = KIND


class StateObjectList(msgspec.Struct):
    """The answer to a list request."""

    metadata: ListMetadata
    items: list[StateObject]


class _OnlyMetadata(msgspec.Struct):
    metadata: Metadata


class _JsonPatchStep(msgspec.Struct):
    op: str
    path: str
    value: object


_OBJECTS: Final = msgspec.json.Decoder(StateObject)


def parse_object(body: bytes | msgspec.Raw) -> StateObject:
    """A custom resource. Raises msgspec.MsgspecError."""
    return _OBJECTS.decode(body)


def revision_of(body: bytes | msgspec.Raw) -> int:
    """The resource version of any object. Raises msgspec.MsgspecError."""
    return int(msgspec.json.decode(body, type=_OnlyMetadata).metadata.resource_version)


def object_name(cluster: str, key: str) -> str:
    """Return the object's name, a DNS subdomain: `demo.topics.flights`, or with a hash for other characters.

    Dots separate, and labels have none: so no two keys of all clusters in a namespace have the same name.
    """
    labels = [cluster]
    for part in key.split("/"):
        if _PLAIN.fullmatch(part):
            labels.append(part)
        else:
            slug = _NOT_PLAIN.sub("-", part.lower())[:SLUG_LENGTH_MAX].strip("-")
            labels += [slug, sha256(part.encode()).hexdigest()[:16]] if slug else [sha256(part.encode()).hexdigest()]
    return ".".join(labels)


def document_of(found: StateObject) -> Document:
    """The document that an object holds."""
    return Document(found.spec.key, bytes(found.spec.document), int(found.metadata.resource_version))


def creation(cluster: str, key: str, value: bytes) -> bytes:
    """The body that creates an object."""
    metadata = Metadata(name=object_name(cluster, key), labels={CLUSTER_LABEL: cluster})
    return msgspec.json.encode(StateObject(metadata, _spec(key, value)))


def replacement(key: str, value: bytes, expected_version: int | None) -> bytes:
    """A JSON patch of the document alone, so that labels and owners which others have set stay."""
    replace = _JsonPatchStep("replace", "/spec", _spec(key, value))
    if expected_version is None:
        return msgspec.json.encode([replace])
    return msgspec.json.encode([_JsonPatchStep("test", "/metadata/resourceVersion", str(expected_version)), replace])


def adoption(found: StateObject, cluster: str, key: str, value: bytes) -> bytes:
    """A JSON patch of an object without our label, as it is now, to one of this cluster that holds the document."""
    labels = {**found.metadata.labels, CLUSTER_LABEL: cluster}
    steps = [
        _JsonPatchStep("test", "/metadata/resourceVersion", found.metadata.resource_version),
        _JsonPatchStep("add", "/metadata/labels", labels),
        _JsonPatchStep("replace", "/spec", _spec(key, value)),
    ]
    return msgspec.json.encode(steps)


def deletion(expected_version: int | None) -> bytes:
    """The options of a deletion."""
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if expected_version is not None:
        options["preconditions"] = {"resourceVersion": str(expected_version)}
    return msgspec.json.encode(options)


def _spec(key: str, value: bytes) -> Spec:
    return Spec(key, msgspec.Raw(value), columns(key, value))


def columns(key: str, value: bytes) -> Columns:
    """A summary for people; of a document of no known kind there is none."""
    try:
        document = decode(key, value)
    except MalformedDocument:
        return Columns()
    match document:
        case TopicDocument(partitions=partitions) | TopicPartDocument(partitions=partitions):
            return _of_partitions(partitions)
        case BrokerRegistration(fenced=fenced, is_shutting_down=is_shutting_down):
            # Unfenced does not mean alive: with no broker left, none fences the last one.
            return Columns(state="Fenced" if fenced else "ShuttingDown" if is_shutting_down else "Unfenced")
        case _:
            return Columns()


def _of_partitions(partitions: Sequence[PartitionState]) -> Columns:
    """The columns of an object; `leaders` counts each broker's led partitions, `isr` in-sync replicas of all."""
    led = Counter(each.leader for each in partitions)
    leaderless = led.pop(NO_LEADER, 0)
    in_sync, replicas = sum(len(each.isr) for each in partitions), sum(len(each.replicas) for each in partitions)
    state = "Offline" if leaderless else "InSync" if in_sync == replicas else "UnderReplicated"
    leaders = " ".join(f"{broker}:{count}" for broker, count in sorted(led.items()))
    return Columns(state, len(partitions), leaders, f"{in_sync}/{replicas}")
