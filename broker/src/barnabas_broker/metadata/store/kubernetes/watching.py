"""The conversion of a watch's lines to events, and to changes of metadata documents."""

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec

from barnabas_broker.metadata.store.kubernetes.objects import (
    MARK_KEY,
    StateObject,
    object_name,
    parse_object,
    revision_of,
)
from barnabas_broker.metadata.store.metadata_store import Change, Changes, HistoryCompacted, StoreUnavailable
from barnabas_kube.client import Status

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
