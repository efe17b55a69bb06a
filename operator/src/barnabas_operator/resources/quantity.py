"""Kubernetes quantities: `500m`, `2`, `512Mi`, `10Gi`, `1e9`, and plain integers.

Templates: partial objects that are merged over the operator's Kubernetes objects as strategic merge patches. Fields
of the template take precedence. Lists with a key in Kubernetes (containers by name, ports by number, volumeMounts
by path) are merged entry by entry, and all other lists are replaced. A mapping with `$patch: replace` replaces the
operator's mapping, and `$patch: delete` removes the operator's mapping.
"""

import re
from decimal import Decimal
from typing import Annotated, Final

from msgspec import Meta, Struct

from barnabas_operator.resources.kind import JsonObject

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
