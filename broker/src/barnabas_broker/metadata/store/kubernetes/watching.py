"""The conversion of a watch's lines to changes."""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NoReturn

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

log = logging.getLogger(__name__)


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENTS: Final = msgspec.json.Decoder(_Event)


def changes_in(lines: Sequence[bytes], cluster: str) -> Changes | None:
    """Return the changes in the lines of a watch response; None if no line is an event.

    Raises HistoryCompacted if the API server no longer keeps the watched revision, and StoreUnavailable for other
    errors.
    """
    changes: list[Change] = []
    revision = 0
    for line in lines:
        if not line:
            continue
        try:
            event = _EVENTS.decode(line)
            if event.type == "ERROR":
                raise_error(msgspec.json.decode(event.object, type=Status))
            revision = revision_of(event.object)
            change = None if event.type == "BOOKMARK" else _change(event, cluster)
        except msgspec.MsgspecError as error:
            raise StoreUnavailable(f"the API server sent an invalid event of a watch: {error}") from error
        if change is not None:
            changes.append(change)
    return Changes(revision, changes) if revision else None


def raise_error(status: Status) -> NoReturn:
    """Raise the error of an ERROR event: HistoryCompacted or StoreUnavailable."""
    if status.code == HTTPStatus.GONE:
        raise HistoryCompacted(status.message)
    raise StoreUnavailable(f"the API server ended a watch with the error {status.code}: {status.message}")


def _change(event: _Event, cluster: str) -> Change | None:
    found = parse_object(event.object)
    if not is_document(found, cluster):
        return None
    value = None if event.type == "DELETED" else bytes(found.spec.document)
    return Change(int(found.metadata.resource_version), found.spec.key, value)


def is_document(found: StateObject, cluster: str) -> bool:
    """True if the object holds metadata: it is neither the marker (MARK_KEY) nor a copy with another object name."""
    key = found.spec.key
    return key != MARK_KEY and found.metadata.name == object_name(cluster, key)
