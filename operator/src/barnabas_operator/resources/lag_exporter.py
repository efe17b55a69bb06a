"""The field `spec.lagExporter` of a Cluster."""

from typing import Annotated

from msgspec import Meta, Struct, field

from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.quantity import Quantity
from barnabas_operator.resources.template import Template


class LagExporterResources(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """The resource requests and limits of the lag exporter's container, for cpu and memory."""

    requests: Annotated[
        dict[str, Quantity], Meta(description="the resources that Kubernetes reserves for the container")
    ] = field(default_factory=lambda: {"cpu": "50m", "memory": "96Mi"})
    limits: Annotated[
        dict[str, Quantity], Meta(description="the highest amount of resources that the container may use")
    ] = field(default_factory=lambda: {"memory": "512Mi"})


class LagExporterTemplate(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Changes to the lag exporter's Kubernetes objects, each given as a partial object."""

    deployment: Annotated[Template, Meta(description="the Deployment")] = Template()
    pod: Annotated[Template, Meta(description="its pod")] = Template()
    container: Annotated[JsonObject, Meta(description="the container lag-exporter")] = {}
    pod_monitor: Annotated[
        Template, Meta(description="the PodMonitor, which exists if the API server has the kind PodMonitor")
    ] = Template()


class LagExporter(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The lag exporter. Regular expressions have Python's syntax, and may match any part of a name."""

    topic_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; only topics whose name matches are exported")
    ] = ".*"
    topic_exclude_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; topics whose name matches are not exported")
    ] = "^$"
    group_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; only groups whose id matches are exported")
    ] = ".*"
    group_exclude_regex: Annotated[
        str, Meta(min_length=1, description="a regular expression; groups whose id matches are not exported")
    ] = "^$"
    image: Annotated[
        str, Meta(pattern=r"^\S*$", description="an image name without spaces; the default is the operator's image")
    ] = ""
    resources: LagExporterResources = LagExporterResources()
    template: LagExporterTemplate = LagExporterTemplate()
