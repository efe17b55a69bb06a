"""Conversion between typed resources and the JSON objects of the API server."""

from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from barnabas_operator.resources.kind import Json, ObjectMeta, Resource
from barnabas_operator.resources.schema_check import FINDINGS_MAX, Finding, findings

ResourceT = TypeVar("ResourceT", bound=Resource)

_META_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ObjectMeta))


class InvalidResource(ValueError):
    """The error that an object is invalid; the message names each wrong field, its value, and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def resource_of(kind: type[ResourceT], body: Json) -> ResourceT:
    """Return the typed resource. An invalid status is ignored. Raises InvalidResource if another field is invalid."""
    plain = _plain(kind, body)
    found = [finding.message for finding in islice(findings(_described(kind), plain), FINDINGS_MAX + 1)]
    if found:
        raise InvalidResource(found if len(found) <= FINDINGS_MAX else [*found[:FINDINGS_MAX], "and more"])
    try:
        return msgspec.convert({**plain, "status": body.get("status")}, kind)
    except msgspec.ValidationError:
        return msgspec.convert(plain, kind)


def readable_part(kind: type[ResourceT], body: Json) -> ResourceT:
    """Return the resource with the valid fields of its spec; all other fields have their defaults, or are None.

    The operator needs some fields even of an invalid resource, such as the deletion policy.
    """
    plain, types = _plain(kind, body), {field.name: field.type for field in msgspec.structs.fields(kind)}
    wrong = {finding.path[1] for finding in findings(_described(kind), plain) if _is_in_spec(finding)}
    spec = {name: value for name, value in (plain["spec"] or {}).items() if name not in wrong}
    meta = msgspec.convert(plain["metadata"], ObjectMeta)
    try:
        status = msgspec.convert(body.get("status"), types["status"])
    except msgspec.ValidationError:
        status = None
    return kind(kind=kind.__name__, metadata=meta, spec=_part_of(types["spec"], spec), status=status)


def _is_in_spec(finding: Finding) -> bool:
    return len(finding.path) > 1 and finding.path[0] == "spec"


def _part_of(kind: type[msgspec.Struct], given: Json) -> msgspec.Struct:
    fields = msgspec.structs.fields(kind)
    there = {
        each.name: msgspec.convert(given[each.encode_name], each.type) for each in fields if each.encode_name in given
    }
    return kind(**{each.name: None for each in fields if each.required} | there)


def _plain(kind: type[Resource], body: Json) -> dict[str, Any]:
    meta = {name: value for name, value in body["metadata"].items() if name in _META_FIELDS}
    said = {"apiVersion": body.get("apiVersion"), "kind": body.get("kind")}
    return {**said, "metadata": meta, "spec": kind.declared_spec(body)}


@cache
def _described(kind: type[Resource]) -> msgspec.inspect.Type:
    return msgspec.inspect.type_info(kind)


def status_json(resource: Resource) -> dict[str, Any]:
    """Return the status as JSON, in the form in which the API server returns it."""
    status: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(resource.status)) if resource.status else {}
    return status
