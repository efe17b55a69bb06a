"""The description of a kind of resource: its names, columns, and the rules that its types cannot express."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.resource import Resource, Status

NOTHING: Mapping[type, Any] = {}


class Scaled(NamedTuple):
    """A number, by the path of its field in the spec, and of the field in the status that says how many there are."""

    in_spec: tuple[str, ...]
    in_status: tuple[str, ...]


class Kind(NamedTuple):
    """CRD, ClusterRoles, reference, watch, metrics and the chart's rights are made of it.

    A resource of any kind but Cluster belongs to a Cluster of its namespace: to the one that `spec.cluster` names,
    else to the one of `status.cluster`, else to the only one that there is.
    """

    resource: type[Resource]
    """The class of the resources; it has the name of the kind."""
    status: type[Status]
    plural: str
    short_name: str
    writer: Literal["edit", "admin"]
    """The lowest of Kubernetes' own roles that may write this kind; `view` may read every kind."""
    rights: str
    """The role that may do so with this kind alone is called `barnabas-RIGHTS-edit`."""
    thing: str
    """The word that sentences use for the thing that a resource stands for."""
    columns: tuple[JsonObject, ...] = ()
    """The columns of `kubectl get`, between Ready and Reason, and Age and Message."""
    rules: Mapping[type, list[JsonObject]] = NOTHING
    """CEL, by the Struct that it is about. A rule with `oldSelf` holds for changes only. Each says the field, the value
    and what is allowed."""
    list_rules: Mapping[type, list[JsonObject]] = NOTHING
    """CEL about lists, by what is in them."""
    list_keys: Mapping[type, str] = NOTHING
    """The field that tells the entries of a list apart, by what is in the list."""
    not_filled_in: frozenset[type] = frozenset()
    """Left out, these, and lists of them, stay so in what is stored."""
    scaled: Scaled | None = None
    """The field that `kubectl scale` sets."""
    name_field: str | None = None
    """The field of spec that holds the name in Kafka, where that is not `metadata.name`."""
    folded: Callable[[str], str] = str
    """The function that maps names that collide in Kafka to the same text."""
    status_is_news: bool = True
    """True if a change of the status alone reconciles the Cluster again; False where statuses change often."""
    is_in_files: bool = False
    """True if `barnabas up` reads the kind from manifest files."""
    has_ready_column: bool = True
    """True if Ready is the first column of `kubectl get`; False where another column says the same in a better word."""

    @property
    def name(self) -> str:
        """The kind, as the field `kind` has it."""
        return self.resource.__name__

    def name_in_kafka(self, body: Mapping[str, Any]) -> str:
        """Return the name in Kafka that a resource stands for, from its JSON."""
        named = body.get("spec", {}).get(self.name_field) if self.name_field is not None else None
        return str(named or body["metadata"]["name"])


def column(name: str, kind: str, path: str, *, wide: bool = False) -> JsonObject:
    """One column; a wide one is shown by `-o wide` only."""
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


def fixed(field: str, inside: str = "spec") -> JsonObject:
    """The rule of a field that never changes once the resource is there, nor comes or goes."""
    return {
        "rule": f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        "messageExpression": (
            f"'{inside}.{field} is ' + (has(self.{field}) ? self.{field} : 'missing') + '; allowed: '"
            f" + (has(oldSelf.{field}) ? oldSelf.{field} : 'leave it out') + ', it cannot change'"
        ),
    }
