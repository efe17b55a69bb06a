"""The part of a `Cluster` that says how the lag of its consumer groups is exported."""

from typing import Annotated

from msgspec import Meta, Struct, field

from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.quantity import Quantity
from barnabas_operator.resources.template import Template


class LagExporterResources(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The resources that its container requests, and its limits: cpu, memory."""

    requests: Annotated[dict[str, Quantity], Meta(description="the resources that Kubernetes reserves for it")] = field(
        default_factory=lambda: {"cpu": "50m", "memory": "96Mi"}
    )
    limits: Annotated[dict[str, Quantity], Meta(description="the most resources that it may use")] = field(
        default_factory=lambda: {"memory": "512Mi"}
    )


class LagExporterTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes of the objects that are made for it: one entry for each, a partial object of its kind."""

    deployment: Annotated[Template, Meta(description="the Deployment")] = Template()
    pod: Annotated[Template, Meta(description="its pod")] = Template()
    container: Annotated[JsonObject, Meta(description="the container called lag-exporter")] = {}
    pod_monitor: Annotated[Template, Meta(description="the PodMonitor, if the API server has that kind")] = Template()


class LagExporter(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The lag exporter, with kafkaExporter's names of Strimzi. Expressions are Python's, and are searched for."""

    topic_regex: Annotated[str, Meta(min_length=1, description="only topics whose name has a match")] = ".*"
    topic_exclude_regex: Annotated[str, Meta(min_length=1, description="no topic whose name has a match")] = "^$"
    group_regex: Annotated[str, Meta(min_length=1, description="only groups whose name has a match")] = ".*"
    group_exclude_regex: Annotated[str, Meta(min_length=1, description="no group whose name has a match")] = "^$"
    image: Annotated[
        str, Meta(pattern=r"^\S*$", description="the image, without spaces; left out, that of the operator")
    ] = ""
    resources: LagExporterResources = LagExporterResources()
    template: LagExporterTemplate = LagExporterTemplate()
