"""Resources as the API server gives them: JSON with more metadata than ours, already checked by its schema or not."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.schema_check import findings
from barnabas_operator.resources.topic import Topic

ResourceT = TypeVar("ResourceT", Cluster, Topic)
JsonObject = Mapping[str, Any]

_META_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(ObjectMeta))
_SCHEMAS: Final = {kind: msgspec.inspect.type_info(kind) for kind in (Cluster, Topic)}


class InvalidResource(ValueError):
    """The object is none of its type: every field that is wrong, with its value and what is allowed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def resource_of(kind: type[ResourceT], body: JsonObject) -> ResourceT:
    """The typed resource. What another version of the operator wrote into the status is no reason to refuse it.

    Raises InvalidResource.
    """
    meta = {name: value for name, value in body["metadata"].items() if name in _META_FIELDS}
    plain = {
        "apiVersion": body.get("apiVersion"),
        "kind": body.get("kind"),
        "metadata": meta,
        "spec": body.get("spec", {}),
    }
    problems = [finding.message for finding in findings(_SCHEMAS[kind], plain)]
    if problems:
        raise InvalidResource(problems)
    try:
        return msgspec.convert({**plain, "status": body.get("status")}, kind)
    except msgspec.ValidationError:
        return msgspec.convert(plain, kind)


def readable_part(kind: type[ResourceT], body: JsonObject) -> ResourceT:
    """The resource with those fields of its spec that can be read; all others have their defaults.

    Another version of the operator, or nobody, may have checked it: what becomes of what it owns must still be known.
    """
    spec = {name: value for name, value in (body.get("spec") or {}).items() if _is_readable(kind, body, name, value)}
    return resource_of(kind, {**body, "spec": spec})


def _is_readable(kind: type[ResourceT], body: JsonObject, name: str, value: object) -> bool:
    try:
        resource_of(kind, {**body, "spec": {name: value}, "status": None})
    except InvalidResource:
        return False
    return True


def status_json(resource: Cluster | Topic) -> dict[str, Any]:
    """The status as the API server takes it and gives it back: JSON's lists, so that the two compare as equal."""
    status: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(resource.status)) if resource.status else {}
    return status
