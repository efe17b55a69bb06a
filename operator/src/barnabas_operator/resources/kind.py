"""The description of a kind of resource: its names, columns of `kubectl get`, and CEL rules.

A Cluster on Kubernetes has defaults for listeners and authorization that the CRD cannot contain, because they depend on
`spec.insecure`.

Quantities are those of Kubernetes: `500m`, `2`, `512Mi`, `10Gi`, `1e9`, and plain integers. Templates are partial
objects that are merged over the operator's objects as strategic merge patches. Fields of the template take precedence.
Lists with a key in Kubernetes (containers by name, ports by number, volumeMounts by path) are merged entry by entry,
and all other lists are replaced. A mapping with `$patch: replace` replaces the operator's mapping, and `$patch: delete`
removes it.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args

from msgspec import DecodeError, Meta, Struct, field
from msgspec import json as msgspec_json
from msgspec.structs import replace

ApiVersion = Literal["barnabas.dev/v1alpha1"]
"""The API version of the operator's resources."""
API_VERSION: Final[ApiVersion] = get_args(ApiVersion)[0]
GROUP, VERSION = API_VERSION.split("/")

READY: Final = "Ready"
ROLLING: Final = "Rolling"
DRIFTED: Final = "Drifted"
RECONCILIATION_PAUSED: Final = "ReconciliationPaused"
RECORDS_LOST: Final = "RecordsLost"
CLAIMS_DELETED: Final = "ClaimsDeleted"
VOLUMES_RESIZING: Final = "VolumesResizing"
CLAIMS_LARGER: Final = "ClaimsLarger"
NODES_LEFT_OUT: Final = "NodesLeftOut"
SECURITY_CHANGING: Final = "SecurityChanging"
LOGS_SET_ASIDE: Final = "LogsSetAside"
REBALANCE_PROPOSED: Final = "RebalanceProposed"
REBALANCING: Final = "Rebalancing"
WITHIN_OBJECTIVE: Final = "WithinObjective"
OFFSETS_RESET: Final = "OffsetsReset"
DEAD_LETTERS_ENABLED: Final = "DeadLettersEnabled"
SCALING_ACTIVE: Final = "ScalingActive"
"""The type of the condition about scaling, as in a HorizontalPodAutoscaler."""

MESSAGE_LENGTH_MAX: Final = 32_768
"""The maximum length of a message in characters, as in `metav1.Condition`."""

Message = Annotated[str, Meta(max_length=MESSAGE_LENGTH_MAX)]

ResourceNameText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit (RFC 1123)",
    ),
]


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The metadata of a resource, which the API server or `barnabas up` maintains."""

    name: ResourceNameText
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


ObservedGeneration = Annotated[
    int,
    Meta(
        description=(
            "the metadata.generation at the last reconciliation; a lower number than in the metadata means that "
            "the last change has not been reconciled yet"
        )
    ),
]


class Condition(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A condition of a resource, as in Kubernetes (`metav1.Condition`)."""

    type: Annotated[str, Meta(description="the type of the condition, such as Ready")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="whether the condition holds")]
    reason: Annotated[str, Meta(description="the reason in one word; docs/how-to/troubleshoot.md lists all reasons")]
    # A factory, because `omit_defaults` would leave out an empty text, and a `metav1.Condition` always has a message.
    message: Annotated[Message, Meta(description="why, for people")] = field(default_factory=str)
    last_transition_time: Annotated[str, Meta(description="when the status of the condition last changed")]
    observed_generation: ObservedGeneration | None = None


Conditions = Annotated[tuple[Condition, ...], Meta(description="the conditions of the resource")]


def shortened(text: str, length_max: int) -> str:
    """Return the text; if it is longer than `length_max` characters, cut it, with an ellipsis at the end."""
    return text if len(text) <= length_max else f"{text[: length_max - 3]}..."


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of this type; None if there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def merge_conditions(previous: Iterable[Condition], current: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the current conditions. A condition whose status is unchanged keeps its previous transition time."""
    before = {condition.type: condition for condition in previous}
    merged = []
    for condition in current:
        old = before.get(condition.type)
        if old is not None and old.status == condition.status:
            condition = replace(condition, last_transition_time=old.last_transition_time)
        merged.append(condition)
    return tuple(merged)


Json = Mapping[str, Any]
"""The type of a JSON object that is only read."""

JsonObject = dict[str, Any]
"""The type of a JSON object that this program builds, or of a field that may hold any JSON object."""


class Status(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The state of a resource at the last reconciliation."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration | None = None


class Resource(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A resource of any kind. Subclasses define `kind`, `spec` and `status`."""

    api_version: ApiVersion = API_VERSION
    kind: str
    metadata: ObjectMeta
    spec: Any
    status: Status | None = None

    @classmethod
    def declared_spec(cls, body: Json) -> Json:
        """Return the spec of an object of the API server, with the defaults that the CRD cannot contain."""
        spec: Json = body.get("spec", {})
        return spec

    @property
    def owner_reference(self) -> Json:
        """The entry in `metadata.ownerReferences` of the objects that the resource owns."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.metadata.name,
            "uid": self.metadata.uid or "",
            "controller": True,
            "blockOwnerDeletion": False,
        }

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions in the status; empty before the first status."""
        return self.status.conditions if self.status is not None else ()

    @property
    def is_paused(self) -> bool:
        """True if the resource must not be reconciled. A kind without `spec.pause` is never paused."""
        return bool(getattr(self.spec, "pause", False))


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


class Key(NamedTuple):
    """The namespace and name of a resource."""

    namespace: str
    name: str


def key_of(body: Json) -> Key:
    """Return the namespace and name in `body`, a resource as JSON."""
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def with_words(schema: Json) -> dict[str, Any]:
    """Return the schema of a field, with the default and the bounds added to the field's description."""
    bounds = bounds_words(schema, "allowed: ") if "enum" not in schema else ""  # kubectl shows enum values itself.
    text = "; ".join(filter(None, (default_words(schema, "default: "), bounds)))
    description = schema.get("description", "").rstrip(".")
    if not text:
        return dict(schema)
    return {**schema, "description": f"{description}. {text[0].upper()}{text[1:]}." if description else text}


def default_words(schema: Json, prefix: str = "") -> str:
    """Return the default of a field as text; empty if it has no default, or the default is an empty mapping."""
    default = schema.get("default")
    return f"{prefix}{plain_words(default)}" if default not in (None, {}) else ""


def bounds_words(schema: Json, prefix: str = "") -> str:
    """Return the values of an enum, or the bounds of a number or list, as text; empty if the schema has neither."""
    if "enum" in schema:
        return f"{prefix}{', '.join(schema['enum'])}"
    low, high = _bounds(schema)
    if low is not None and high is not None:
        return f"{prefix}{low} to {high}{_unit(schema)}"
    return f"{prefix}{low} or more{_unit(schema)}" if low is not None else ""


def _bounds(schema: Json) -> tuple[int | None, int | None]:
    """Return the minimum and maximum of an integer, or of a list's length. A list without `minItems` has no bounds."""
    if schema.get("type") == "integer":
        return schema.get("minimum"), schema.get("maximum")
    return (schema["minItems"], schema["maxItems"]) if "minItems" in schema else (None, None)


def _unit(schema: Json) -> str:
    return " entries" if schema.get("type") == "array" else ""


def plain_words(value: object) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(_entries(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(plain_words, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _entries(value: Json) -> Iterator[str]:
    return (f"{name}: {plain_words(item)}" for name, item in value.items())


T = TypeVar("T")


def foreign_json(text: str | bytes, kind: type[T]) -> T | None:
    """Return the decoded JSON; None if the text is not JSON of this type, or is nested too deeply."""
    try:
        return msgspec_json.decode(text, type=kind)
    except (DecodeError, RecursionError):
        return None


OPEN_LISTENER: Final[Json] = {"name": "plain"}
SECURED_LISTENER: Final[Json] = {"name": "secure", "tls": True, "authentication": {"type": "scram-sha-512"}}
"""The default listener of a secured Cluster. Like `OPEN_LISTENER`, it is internal and has port 9092."""


def with_security(body: Json) -> Json:
    """Return the spec with its defaults. Without `listeners`, the default is one listener that depends on `insecure`.

    The default listener is plain if `insecure` is true. Otherwise, the default listener is secured, and authorization
    is turned on. `insecure` becomes true if an unsecured Cluster was created before this field existed.
    """
    spec: Json = body.get("spec") or {}
    if _is_from_before(body) and any(map(is_open, spec.get("listeners", (OPEN_LISTENER,)))):
        spec = {**spec, "insecure": True}
    if "listeners" in spec:
        return spec
    if spec.get("insecure"):
        return {**spec, "listeners": [OPEN_LISTENER]}
    return {"authorization": {}, **spec, "listeners": [SECURED_LISTENER]}


def is_made_insecure(body: Json) -> bool:
    """True if `insecure` is true in the result of `with_security`, but not in the stored spec."""
    return bool(with_security(body).get("insecure")) and not (body.get("spec") or {}).get("insecure")


def _is_from_before(body: Json) -> bool:
    """True if an operator that did not know `spec.insecure` wrote the status, which then lacks the field `security`."""
    status: Json = body.get("status") or {}
    return bool(status) and "security" not in status


def is_open(listener: Json) -> bool:
    """True if the listener has neither TLS nor authentication."""
    return not listener.get("tls") and not listener.get("authentication")


ALLOWED: Final = "a quantity such as 500m, 2, 512Mi or 10Gi"
_PARTS: Final = re.compile(r"([0-9.]+)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))")
_BINARY: Final = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
_DECIMAL: Final = {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
_SMALL: Final = {letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)}
_BYTES: Final = re.compile(r"([0-9.]+) ?([kKMGTPE])i?[bB]?")
FACTORS: Final = {"": Decimal(1), **_SMALL, **_BINARY, **_DECIMAL}


def quantity_value(written: str | int) -> Decimal:
    """Return the value of a quantity, which must be valid, such as 0.5 for `500m`."""
    parts = _PARTS.fullmatch(str(written))
    assert parts is not None, written
    factor = FACTORS[parts[3]] if parts[2] is None else Decimal(10) ** int(parts[2])
    return Decimal(parts[1]) * factor


def quantity_hint(written: object) -> str:
    """Return a hint for texts such as `10GB` or `10 Gi`; empty for any other text."""
    parts = _BYTES.fullmatch(str(written))
    if parts is None:
        return ""
    amount, unit = parts[1], parts[2].upper()
    return f"; write {amount}{unit}i or {amount}{'k' if unit == 'K' else unit}"


def shown_amount(written: str | int) -> str:
    """Return the amount as text. A plain number is followed by `(bytes)`, in case the user forgot to write a unit."""
    return f"{written} (bytes)" if str(written).isdecimal() else str(written)


QuantityText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=32,
        pattern=r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$",
    ),
]
Quantity = Annotated[
    Annotated[int, Meta(ge=0)] | QuantityText,
    Meta(description=ALLOWED, extra={"allowed": ALLOWED, "hint": quantity_hint}),
]


BROKER_IDS_MAX: Final = 1_000
Labels = Annotated[dict[str, str], Meta(description="labels in addition to the operator's labels")]
Annotations = Annotated[dict[str, str], Meta(description="annotations in addition to the operator's annotations")]


class TemplateMetadata(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Labels and annotations."""

    labels: Labels = {}
    annotations: Annotations = {}


class MetadataTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A partial object with only labels and annotations."""

    metadata: TemplateMetadata = TemplateMetadata()


class Template(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A partial object, which is merged over the operator's object."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[JsonObject, Meta(description="fields to add or override in the spec of the object")] = {}


class BrokerServiceTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Overrides for the Service of one broker."""

    broker_id: Annotated[int, Meta(ge=0, le=BROKER_IDS_MAX - 1, description="the broker id, unique within the list")]
    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[JsonObject, Meta(description="fields to add or override in the spec of the Service")] = {}


class ListenerTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Overrides for the Services of a listener of type nodeport or loadbalancer."""

    bootstrap_service: Annotated[Template, Meta(description="the bootstrap Service, which connects to any broker")] = (
        Template()
    )
    broker_service: Annotated[Template, Meta(description="the Service of each broker")] = Template()
    broker_services: Annotated[
        tuple[BrokerServiceTemplate, ...],
        Meta(
            max_length=BROKER_IDS_MAX,
            description="fields to add or override in the Services of individual brokers, applied after brokerService",
        ),
    ] = ()


class ClusterTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Overrides for the Cluster's Kubernetes objects, each given as a partial object."""

    metadata: Annotated[TemplateMetadata, Meta(description="labels and annotations of all objects, including pods")] = (
        TemplateMetadata()
    )
    stateful_set: Annotated[Template, Meta(description="the StatefulSet")] = Template()
    pod: Annotated[Template, Meta(description="the brokers' pods; a change restarts brokers")] = Template()
    broker_container: Annotated[
        JsonObject, Meta(description="the container with the name broker; a change restarts brokers")
    ] = {}
    persistent_volume_claim: Annotated[MetadataTemplate, Meta(description="the claims of the brokers' disks")] = (
        MetadataTemplate()
    )
    brokers_service: Annotated[Template, Meta(description="the headless Service, NAME-broker")] = Template()
    bootstrap_service: Annotated[
        Template,
        Meta(description="the bootstrap Service for pods, NAME-bootstrap; for other Services use listeners[].template"),
    ] = Template()
    config_map: Annotated[MetadataTemplate, Meta(description="the brokers' settings")] = MetadataTemplate()
    service_account: Annotated[MetadataTemplate, Meta(description="the brokers' ServiceAccount")] = MetadataTemplate()
    pod_disruption_budget: Annotated[Template, Meta(description="the PodDisruptionBudget")] = Template()
    network_policy: Annotated[Template, Meta(description="the NetworkPolicy")] = Template()
    pod_monitor: Annotated[
        Template, Meta(description="the PodMonitor, which exists if the API server has the kind PodMonitor")
    ] = Template()
