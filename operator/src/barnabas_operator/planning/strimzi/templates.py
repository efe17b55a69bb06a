"""The conversion of Strimzi's templates to templates of a Cluster, which are partial Kubernetes objects."""

from typing import Any, Final

from barnabas_operator.planning.strimzi.section import Section, given
from barnabas_operator.resources.json_types import JsonObject

OF_POOLS: Final = ("podSet", "pod", "perPodService", "persistentVolumeClaim", "kafkaContainer")
"""The fields in the template of a Kafka resource that the template of a KafkaNodePool replaces."""

_POD: Final = {
    "imagePullSecrets": tuple[dict[str, Any], ...],
    "securityContext": dict[str, Any],
    "terminationGracePeriodSeconds": int,
    "affinity": dict[str, Any],
    "tolerations": tuple[dict[str, Any], ...],
    "topologySpreadConstraints": tuple[dict[str, Any], ...],
    "priorityClassName": str,
    "schedulerName": str,
    "hostAliases": tuple[dict[str, Any], ...],
    "dnsPolicy": str,
    "dnsConfig": dict[str, Any],
    "enableServiceLinks": bool,
    "volumes": tuple[dict[str, Any], ...],
}
_CONTAINER: Final = {
    "env": tuple[dict[str, Any], ...],
    "securityContext": dict[str, Any],
    "volumeMounts": tuple[dict[str, Any], ...],
}
_SERVICE: Final = {"ipFamilyPolicy": str, "ipFamilies": tuple[str, ...]}
_BUDGET: Final = {"maxUnavailable": int}


def cluster_template(kafka: Section, pool: Section | None, labels: dict[str, str], probes: JsonObject) -> JsonObject:
    """Return `spec.template`; `pool` is the template of the node pool, or None."""
    one = pool if pool is not None else kafka
    return given(
        metadata=given(labels=labels),
        statefulSet=metadata_of(one, "podSet"),
        pod=pod_of(one),
        brokerContainer={**probes, **container_of(one, "kafkaContainer")},
        persistentVolumeClaim=metadata_of(one, "persistentVolumeClaim"),
        brokersService=_with_spec(kafka, "brokersService", _SERVICE),
        bootstrapService=_with_spec(kafka, "bootstrapService", _SERVICE),
        serviceAccount=metadata_of(kafka, "serviceAccount"),
        podDisruptionBudget=_with_spec(kafka, "podDisruptionBudget", _BUDGET),
    )


def pod_of(template: Section) -> JsonObject:
    """Return the template of pods, converted from the entry `pod` of a Strimzi template."""
    return _with_spec(template, "pod", _POD)


def container_of(template: Section, name: str) -> JsonObject:
    """Return the template of a container, converted from the entry `name` of a Strimzi template."""
    return _taken(template.section(name), _CONTAINER)


def metadata_of(template: Section, name: str) -> JsonObject:
    """Return a template that has only the labels and annotations of the entry `name` of a Strimzi template."""
    return _with_spec(template, name, {})


def labels_and_annotations(section: Section) -> JsonObject:
    """Return the fields `labels` and `annotations` of a section."""
    labels, annotations = section.take("labels", dict[str, str]), section.take("annotations", dict[str, str])
    return given(labels=labels, annotations=annotations)


def _with_spec(template: Section, name: str, fields: dict[str, Any]) -> JsonObject:
    if name not in template:
        return {}
    entry = template.section(name)
    metadata = labels_and_annotations(entry.section("metadata"))
    return given(metadata=metadata, spec=_taken(entry, fields))


def _taken(section: Section, fields: dict[str, Any]) -> JsonObject:
    return given(**{name: section.take(name, kind) for name, kind in fields.items()})
