"""The custom resources that hold metadata documents: names, contents, kubectl's columns, and request bodies.

`helm/barnabas/crd-files/statedocuments.internal.barnabas.dev.yaml` defines these custom resources.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from barnabas_broker.metadata.documents import MalformedDocument, decode
from barnabas_broker.metadata.model import (
    NO_LEADER,
    BrokerRegistration,
    PartitionState,
    TopicDocument,
    TopicPartDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    Change,
    Changes,
    Document,
    HistoryCompacted,
    Secrets,
    StoreUnavailable,
)
from barnabas_core.conventions import SHARDS
from barnabas_kube.client import Status

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


T = TypeVar("T")


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENTS: Final = msgspec.json.Decoder(_Event)


def parse_event(line: bytes, parse: Callable[[str, msgspec.Raw], T]) -> T:
    """Return what `parse` returns for the type and the object of an event, which is a line of a watch.

    Raises HistoryCompacted if the API server no longer keeps the watched revision, and StoreUnavailable for other
    errors.
    """
    try:
        event = _EVENTS.decode(line)
        if event.type != "ERROR":
            return parse(event.type, event.object)
        status = msgspec.json.decode(event.object, type=Status)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"the API server sent an invalid event of a watch: {error}") from error
    if status.code == HTTPStatus.GONE:
        raise HistoryCompacted(status.message)
    raise StoreUnavailable(f"the API server ended a watch with the error {status.code}: {status.message}")


def changes_in(lines: Sequence[bytes], cluster: str) -> Changes | None:
    """Return the changes in the lines of a watch response; None if no line is an event. Raises as `parse_event`."""
    changes: list[Change] = []
    revision = 0

    def parse(kind: str, found: msgspec.Raw) -> tuple[int, Change | None]:
        return revision_of(found), None if kind == "BOOKMARK" else _change(kind, found, cluster)

    for line in filter(None, lines):
        revision, change = parse_event(line, parse)
        if change is not None:
            changes.append(change)
    return Changes(revision, changes) if revision else None


def _change(kind: str, object_json: msgspec.Raw, cluster: str) -> Change | None:
    found = parse_object(object_json)
    if not is_document(found, cluster):
        return None
    value = None if kind == "DELETED" else bytes(found.spec.document)
    return Change(int(found.metadata.resource_version), found.spec.key, value)


def is_document(found: StateObject, cluster: str) -> bool:
    """True if the object holds metadata: it is neither the marker (MARK_KEY) nor a copy with another object name."""
    key = found.spec.key
    return key != MARK_KEY and found.metadata.name == object_name(cluster, key)


class SecretObject(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of a Secret that a broker reads. The API encodes `data` in base64."""

    metadata: Metadata
    data: dict[str, bytes] = {}


class _Entry(msgspec.Struct, frozen=True):
    """A secret with its key, which may contain characters that the keys of a Kubernetes Secret may not."""

    key: str
    value: msgspec.Raw


class _Change(msgspec.Struct):
    data: dict[str, bytes | None]
    metadata: Metadata = Metadata()


def shard_of(key: str) -> int:
    """Return the number of the Secret that holds a key, which depends on the key's hash."""
    return int(_name(key)[:8], 16) % SHARDS


def change(secrets: Secrets, expected_version: str = "") -> bytes:
    """Return a merge patch that writes these secrets to a Secret.

    The API server refuses a patch with `expected_version` if the Secret has another version.
    """
    data = {
        _name(key): None if value is None else msgspec.json.encode(_Entry(key, msgspec.Raw(value)))
        for key, value in secrets.items()
    }
    return msgspec.json.encode(_Change(data, Metadata(resource_version=expected_version)))


def secrets_in(found: SecretObject) -> tuple[dict[str, bytes], list[str]]:
    """Return the secrets that brokers wrote into a Secret, by key, and the names of the fields that no broker wrote."""
    secrets: dict[str, bytes] = {}
    strange: list[str] = []
    for name, value in found.data.items():
        try:
            entry = msgspec.json.decode(value, type=_Entry)
        except msgspec.MsgspecError:
            strange.append(name)
        else:
            secrets[entry.key] = bytes(entry.value)
    return secrets, strange


def parse_secret(body: bytes) -> SecretObject:
    """Return the Secret in the body of an answer. Raises StoreUnavailable if the body is invalid."""
    try:
        return msgspec.json.decode(body, type=SecretObject)
    except msgspec.MsgspecError as error:
        raise StoreUnavailable(f"the API server returned an invalid Secret: {error}") from error


def secret_after(line: bytes) -> SecretObject | None:
    """Return the Secret in a line of a watch, or None after a deletion. Raises as `parse_event`."""

    def parse(kind: str, found: msgspec.Raw) -> SecretObject | None:
        return None if kind == "DELETED" else msgspec.json.decode(found, type=SecretObject)

    return parse_event(line, parse)


def _name(key: str) -> str:
    return sha256(key.encode()).hexdigest()
