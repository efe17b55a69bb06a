"""A Strimzi resource: its name, labels, annotations and `spec`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas_operator.planning.strimzi.section import Section, Source, given
from barnabas_operator.resources.json_types import JsonObject
from barnabas_operator.resources.object_meta import API_VERSION

CLUSTER_LABEL: Final = "strimzi.io/cluster"
_PAUSE: Final = "strimzi.io/pause-reconciliation"
_MANAGED: Final = "strimzi.io/managed"
_LABELS_OF_TOOLS: Final = ("strimzi.io/", "app.kubernetes.io/")
_WITHOUT_EFFECT: Final = frozenset(
    {
        _PAUSE,
        _MANAGED,
        "kubectl.kubernetes.io/last-applied-configuration",
        "strimzi.io/kraft",
        "strimzi.io/node-pools",
        "strimzi.io/next-node-ids",
        "strimzi.io/remove-node-ids",
    }
)


@dataclass(frozen=True, slots=True)
class StrimziResource:
    """A Strimzi resource as read from YAML; its `source` collects notes and errors."""

    source: Source
    namespace: str | None
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Section

    @property
    def cluster(self) -> str | None:
        """The `Kafka` resource that the label `strimzi.io/cluster` names, or None if the label is missing."""
        return self.labels.get(CLUSTER_LABEL)

    def named_cluster(self) -> str | None:
        """Return the `Kafka` resource that the label `strimzi.io/cluster` names; add a note if the label is missing."""
        if self.cluster is None:
            self.source.hint(f"has no label {CLUSTER_LABEL}; if there are several Clusters, set spec.cluster")
        return self.cluster

    @property
    def is_paused(self) -> bool:
        """True if an annotation stops the reconciliation of the resource."""
        return self.annotations.get(_PAUSE) == "true" or self.annotations.get(_MANAGED) == "false"

    @property
    def own_labels(self) -> dict[str, str]:
        """The labels of the user, without labels of Strimzi and other tools."""
        return {name: text for name, text in self.labels.items() if not name.startswith(_LABELS_OF_TOOLS)}

    def as_kind(self, kind: str, spec: JsonObject) -> JsonObject:
        """Return the Barnabas resource that replaces the Strimzi resource, without Strimzi's labels and annotations."""
        annotations = {name: text for name, text in self.annotations.items() if not name.startswith("strimzi.io/")}
        annotations = {name: text for name, text in annotations.items() if name not in _WITHOUT_EFFECT}
        metadata = given(
            name=self.source.name, namespace=self.namespace, labels=self.own_labels, annotations=annotations
        )
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def read_resource(source: Source, fields: Mapping[str, Any]) -> StrimziResource:
    """Return the Strimzi resource with the given fields, and add notes and errors about its metadata to `source`."""
    whole = Section(source, fields, ())
    whole.skip("apiVersion", "kind", "status")
    metadata = whole.section("metadata")
    namespace = metadata.take("namespace", str)
    labels = metadata.take("labels", dict[str, str]) or {}
    annotations = metadata.take("annotations", dict[str, str]) or {}
    metadata.skip_rest()  # The API server sets all other metadata.
    for name in annotations:
        if name.startswith("strimzi.io/") and name not in _WITHOUT_EFFECT:
            source.note(("metadata", "annotations", name), "is left out: the annotation has no counterpart")
    return StrimziResource(source, namespace, labels, annotations, whole.section("spec"))
