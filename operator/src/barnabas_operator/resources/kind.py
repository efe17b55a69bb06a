"""The description of a kind of resource: its names, columns of `kubectl get`, and CEL rules."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.resource import Resource, Status

NOTHING: Mapping[type, Any] = {}


class Scaled(NamedTuple):
    """The paths of the desired and the actual number of replicas, for the subresource `scale`."""

    in_spec: tuple[str, ...]
    in_status: tuple[str, ...]


class Kind(NamedTuple):
    """The properties of a kind.

    The properties determine the kind's CRD, ClusterRoles, reference page, watch, metrics and RBAC rules in the chart.

    A resource of any kind but Cluster belongs to the Cluster in `spec.cluster`. Without `spec.cluster`, the resource
    belongs to the Cluster in `status.cluster`, or else to the only Cluster of its namespace.
    """

    resource: type[Resource]
    """The class of the resources, which has the same name as the kind."""
    status: type[Status]
    plural: str
    short_name: str
    writer: Literal["edit", "admin"]
    """The lowest user-facing role of Kubernetes that may write this kind. The role `view` may read all kinds."""
    rights: str
    """The part RIGHTS of `barnabas-RIGHTS-edit`, the name of the ClusterRole that allows writing only this kind."""
    thing: str
    """The word for the object in Kafka, as messages use it, such as "topic"."""
    columns: tuple[JsonObject, ...] = ()
    """The columns of `kubectl get`, except Ready, Reason, Age and Message."""
    rules: Mapping[type, list[JsonObject]] = NOTHING
    """The CEL rules, by the Struct that a rule validates. A rule's message names field, value and what is allowed."""
    list_rules: Mapping[type, list[JsonObject]] = NOTHING
    """A mapping from the type of a list's entries to the CEL rules for the list."""
    list_keys: Mapping[type, str] = NOTHING
    """A mapping from the type of a list's entries to the field that identifies an entry."""
    not_filled_in: frozenset[type] = frozenset()
    """The types of values that the CRD never has as a default, neither as the whole default nor in a default list."""
    scaled: Scaled | None = None
    """The fields with the number of replicas, for `kubectl scale`; None if the kind has no subresource `scale`."""
    name_field: str | None = None
    """The field of the spec that can set another name in Kafka than `metadata.name`; None if there is none."""
    folded: Callable[[str], str] = str
    """A function that returns the same text for names that collide in Kafka."""
    status_is_news: bool = True
    """True if a change of only the status causes a reconciliation of the Cluster."""
    is_in_files: bool = False
    """True if `barnabas up` reads the kind from manifest files."""
    has_ready_column: bool = True
    """True if `kubectl get` shows a column Ready after NAME."""

    @property
    def name(self) -> str:
        """The value of the field `kind`."""
        return self.resource.__name__

    def name_in_kafka(self, body: Mapping[str, Any]) -> str:
        """Return the name that the resource `body` has in Kafka."""
        named = body.get("spec", {}).get(self.name_field) if self.name_field is not None else None
        return str(named or body["metadata"]["name"])


def column(name: str, kind: str, path: str, *, wide: bool = False) -> JsonObject:
    """Return a column of `kubectl get`. A wide column is shown only with `-o wide`."""
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


def fixed(field: str, inside: str = "spec") -> JsonObject:
    """Return the CEL rule of a field that cannot be changed, added or removed after the resource was created."""
    return {
        "rule": f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        "messageExpression": (
            f"'{inside}.{field} is ' + (has(self.{field}) ? self.{field} : 'missing') + '; allowed: '"
            f" + (has(oldSelf.{field}) ? oldSelf.{field} : 'no value') + ', because the field cannot change'"
        ),
    }
