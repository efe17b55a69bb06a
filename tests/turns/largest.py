"""The requests with the most elements that the broker accepts, one for each way to fill a request's arrays."""

from collections.abc import Iterator, Set
from itertools import count, pairwise
from math import inf
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.wire import schema
from barnabas_broker.wire.encoder import encode_request
from barnabas_broker.wire.fetch import TOPICS_MAX
from barnabas_broker.wire.framing import API_SPECS, API_VERSIONS, FETCH, SASL_AUTHENTICATE, SASL_HANDSHAKE, ApiSpec
from barnabas_broker.wire.messages import message_class, struct_class

_WITHOUT_ARRAYS_TO_FILL: Final = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
SMALLEST_INTEGERS: Final = 128
"""The number of integers from 0 on that fit into each type."""
_VALUES: Final = {
    "resource_type": 2,
    "acks": 1,
    "max_wait_ms": 0,
    "replica_id": -1,
    "timeout_ms": 30_000,
    "allow_auto_topic_creation": False,
    "validate_only": True,
}
"""The values of fields by name: topics as resources, and requests that are answered at once and make nothing."""
_KINDS_OF_NAMES: Final = {
    "topic": (
        "name",
        "names",
        "topic",
        "topics",
        "topic_name",
        "topic_names",
        "resource_name",
        "subscribed_topic_names",
    ),
    "group": ("group", "groups", "group_id", "groups_names"),
}
_KIND_OF: Final = {field: kind for kind, fields in _KINDS_OF_NAMES.items() for field in fields}


class Largest(NamedTuple):
    """A request of an API that has very many elements in the array at `path`."""

    api: str
    path: str
    elements: int
    frame: bytes


def largest_requests(wanted: Set[str], elements_max: float = inf) -> Iterator[Largest]:
    """Yield the largest request of each wanted API for each of its arrays; of every API if none is named.

    A wanted array is named as `Fetch.topics.partitions`. Requests that delete come last. `elements_max` is a lower
    limit of the elements than that of the API.
    """
    for spec in sorted(API_SPECS.values(), key=lambda each: each.name.startswith("Delete")):
        if spec.key not in _WITHOUT_ARRAYS_TO_FILL:
            for path in _paths(schema.message(f"{spec.name}Request").struct, spec.max_version):
                if wanted and wanted.isdisjoint({spec.name, ".".join((spec.name, *(each.name for each in path)))}):
                    continue
                most = TOPICS_MAX if spec.key == FETCH and len(path) == 1 else spec.elements_max
                yield _largest(spec, path, int(min(most, elements_max)))


def _paths(struct_: schema.Struct, version: int) -> Iterator[tuple[schema.Field, ...]]:
    """Yield the path of each array that this version has."""
    for field in struct_.fields:
        if field.is_array and field.is_in_line(version):
            yield (field,)
            if field.struct is not None:
                yield from ((field, *rest) for rest in _paths(field.struct, version))


def _largest(spec: ApiSpec, path: tuple[schema.Field, ...], elements_max: int) -> Largest:
    elements = elements_max - len(path) + 1
    numbers = count()
    made: Any = [_element(path[-1], spec.max_version, next(numbers)) for _ in range(elements)]
    for field, inner in reversed(list(pairwise(path))):
        outer = _element(field, spec.max_version, 0)
        setattr(outer, inner.name, made)
        made = [outer]
    request = message_class(f"{spec.name}Request")()
    for field in schema.message(f"{spec.name}Request").struct.fields:
        if not field.is_array and field.is_in_line(spec.max_version):
            setattr(request, field.name, _value(field, 0))
    setattr(request, path[0].name, made)
    frame = encode_request(request, spec.max_version, 1, "turns")
    return Largest(spec.name, ".".join(each.name for each in path), elements, bytes(frame))


def _element(field: schema.Field, version: int, number: int) -> Any:
    if field.struct is None:
        return _value(field, number)
    made = struct_class(field.struct)()
    for each in field.struct.fields:
        if not each.is_array and each.is_in_line(version):
            setattr(made, each.name, _value(each, number))
    return made


def _value(field: schema.Field, number: int) -> Any:
    """Return a value that differs for each number, so that nothing is done only once for all elements."""
    if field.name in _VALUES:
        return _VALUES[field.name]
    if field.kind == "string":
        return f"{_KIND_OF.get(field.name, field.name)}-{number}"
    if field.kind == "uuid":
        return UUID(int=number + 1)
    if field.kind in ("bytes", "records"):
        return b""
    if field.kind == "int32" and "partition" in field.name:
        return number
    if field.is_array and field.kind.startswith("int"):
        return number % SMALLEST_INTEGERS
    return field._replace(is_array=False).default
