"""The custom resources that hold metadata documents: names, contents, kubectl's columns, and request bodies.

`helm/barnabas/crd-files/statedocuments.internal.barnabas.dev.yaml` defines these custom resources.
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
"""The key of the marker, an object that holds no metadata of the cluster.

A write of the marker makes every watch report the revision of the write.
"""
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
    """The spec of a custom resource, which stores one metadata value: the value, its key, and kubectl's columns."""

    key: str
    document: msgspec.Raw
    summary: Columns = Columns()


class Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The fields of a Kubernetes object's `metadata` that the store uses."""

    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class ListMetadata(msgspec.Struct, rename="camel"):
    """The metadata of a list, with the revision of the list."""

    resource_version: str


class StateObject(msgspec.Struct, frozen=True, rename="camel"):
    """A custom resource that holds the value of one key of the metadata store."""

    metadata: Metadata
    spec: Spec
    api_version: str = f"{GROUP}/{VERSION}"
    kind: str = KIND


class StateObjectList(msgspec.Struct):
    """The answer to a request that lists custom resources."""

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
    """Return the custom resource in a body. Raises msgspec.MsgspecError."""
    return _OBJECTS.decode(body)


def revision_of(body: bytes | msgspec.Raw) -> int:
    """Return the resourceVersion of the object, of any kind, in a response body. Raises msgspec.MsgspecError."""
    return int(msgspec.json.decode(body, type=_OnlyMetadata).metadata.resource_version)


def object_name(cluster: str, key: str) -> str:
    """Return the object name for a key, such as `demo.topics.flights`.

    A part of the key with unusual characters becomes two labels: a readable form of the part, and its hash.
    The name is a DNS subdomain. Its first label is the name of the cluster, so keys of different clusters in a
    namespace have different names. Labels have no dots, so different keys have different names.
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
    """Return the metadata document that a Kubernetes object of the store contains."""
    return Document(found.spec.key, bytes(found.spec.document), int(found.metadata.resource_version))


def creation(cluster: str, key: str, value: bytes) -> bytes:
    """Return the body of a request that creates an object."""
    metadata = Metadata(name=object_name(cluster, key), labels={CLUSTER_LABEL: cluster})
    return msgspec.json.encode(StateObject(metadata, _spec(key, value)))


def replacement(key: str, value: bytes, expected_version: int | None) -> bytes:
    """Return a JSON patch that replaces only the spec, so that labels and owners from other processes stay."""
    replace = _JsonPatchStep("replace", "/spec", _spec(key, value))
    if expected_version is None:
        return msgspec.json.encode([replace])
    return msgspec.json.encode([_JsonPatchStep("test", "/metadata/resourceVersion", str(expected_version)), replace])


def adoption(found: StateObject, cluster: str, key: str, value: bytes) -> bytes:
    """Return a JSON patch that gives an object the label of this cluster, and replaces the object's spec.

    The patch fails if the object has changed since `found` was read.
    """
    labels = {**found.metadata.labels, CLUSTER_LABEL: cluster}
    steps = [
        _JsonPatchStep("test", "/metadata/resourceVersion", found.metadata.resource_version),
        _JsonPatchStep("add", "/metadata/labels", labels),
        _JsonPatchStep("replace", "/spec", _spec(key, value)),
    ]
    return msgspec.json.encode(steps)


def deletion(expected_version: int | None) -> bytes:
    """Return the options of a request that deletes an object."""
    options: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if expected_version is not None:
        options["preconditions"] = {"resourceVersion": str(expected_version)}
    return msgspec.json.encode(options)


def _spec(key: str, value: bytes) -> Spec:
    return Spec(key, msgspec.Raw(value), columns(key, value))


def columns(key: str, value: bytes) -> Columns:
    """Return the values of kubectl's columns for a metadata document; most kinds of documents have none."""
    try:
        document = decode(key, value)
    except MalformedDocument:
        return Columns()
    match document:
        case TopicDocument(partitions=partitions) | TopicPartDocument(partitions=partitions):
            return _of_partitions(partitions)
        case BrokerRegistration(fenced=fenced, is_shutting_down=is_shutting_down):
            # "Unfenced" does not mean alive: if all brokers die, no broker is left to fence the one that died last.
            return Columns(state="Fenced" if fenced else "ShuttingDown" if is_shutting_down else "Unfenced")
        case _:
            return Columns()


def _of_partitions(partitions: Sequence[PartitionState]) -> Columns:
    """Return the values of kubectl's columns for some partitions.

    `leaders` has the number of partitions of each leader, and `isr` the number of in-sync replicas of all partitions.
    """
    led = Counter(each.leader for each in partitions)
    leaderless = led.pop(NO_LEADER, 0)
    in_sync, replicas = sum(len(each.isr) for each in partitions), sum(len(each.replicas) for each in partitions)
    state = "Offline" if leaderless else "InSync" if in_sync == replicas else "UnderReplicated"
    leaders = " ".join(f"{broker}:{count}" for broker, count in sorted(led.items()))
    return Columns(state, len(partitions), leaders, f"{in_sync}/{replicas}")
