"""The partial objects of a Cluster's templates, which are merged over the objects that the operator makes.

A template is a strategic merge patch: fields that it names win; lists that Kubernetes keys (containers by name, ports
by number, volumeMounts by path) are merged entry by entry, other lists are replaced. `$patch: replace` in a mapping
replaces the operator's mapping, `$patch: delete` removes it.
"""

from typing import Annotated, Final

from msgspec import Meta, Struct

from barnabas_operator.resources.json_types import JsonObject

BROKER_IDS_MAX: Final = 1_000
Labels = Annotated[dict[str, str], Meta(description="labels, added to the operator's own")]
Annotations = Annotated[dict[str, str], Meta(description="annotations, added to the operator's own")]


class TemplateMetadata(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Labels and annotations."""

    labels: Labels = {}
    annotations: Annotations = {}


class MetadataTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """An object whose labels and annotations can be changed, and nothing else."""

    metadata: TemplateMetadata = TemplateMetadata()


class Template(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A partial object of its kind, merged over what the operator makes."""

    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[JsonObject, Meta(description="a part of that kind's spec: only what is to differ")] = {}


class BrokerServiceTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The Service of one broker."""

    broker_id: Annotated[int, Meta(ge=0, le=BROKER_IDS_MAX - 1, description="the broker's number; each once")]
    metadata: TemplateMetadata = TemplateMetadata()
    spec: Annotated[JsonObject, Meta(description="a part of a Service's spec: only what is to differ")] = {}


class ListenerTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes of the Services of a listener of type nodeport or loadbalancer."""

    bootstrap_service: Annotated[Template, Meta(description="the bootstrap Service, which leads to any broker")] = (
        Template()
    )
    broker_service: Annotated[Template, Meta(description="the Service of each broker")] = Template()
    broker_services: Annotated[
        tuple[BrokerServiceTemplate, ...],
        Meta(max_length=BROKER_IDS_MAX, description="the Service of one broker, merged over brokerService"),
    ] = ()


class ClusterTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes of the objects that the operator makes: one entry for each, a partial object of its kind."""

    metadata: Annotated[TemplateMetadata, Meta(description="labels and annotations of every object, pods included")] = (
        TemplateMetadata()
    )
    stateful_set: Annotated[Template, Meta(description="the StatefulSet")] = Template()
    pod: Annotated[Template, Meta(description="the brokers' pods; a change restarts brokers")] = Template()
    broker_container: Annotated[
        JsonObject, Meta(description="the container called broker; a change restarts brokers")
    ] = {}
    persistent_volume_claim: Annotated[MetadataTemplate, Meta(description="the claims of the brokers' disks")] = (
        MetadataTemplate()
    )
    brokers_service: Annotated[Template, Meta(description="the headless Service, NAME-broker")] = Template()
    bootstrap_service: Annotated[
        Template,
        Meta(description="the Service for pods, NAME-bootstrap; those of other listeners: listeners[].template"),
    ] = Template()
    config_map: Annotated[MetadataTemplate, Meta(description="the brokers' settings")] = MetadataTemplate()
    service_account: Annotated[MetadataTemplate, Meta(description="the brokers' ServiceAccount")] = MetadataTemplate()
    pod_disruption_budget: Annotated[Template, Meta(description="the PodDisruptionBudget")] = Template()
    network_policy: Annotated[Template, Meta(description="the NetworkPolicy")] = Template()
    pod_monitor: Annotated[Template, Meta(description="the PodMonitor, if the API server has that kind")] = Template()
