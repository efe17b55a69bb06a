"""Functions that apply `spec.template.pod` of a maintenance run to its pods."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import ImagePullSecret, RunPodTemplate, RunTemplate
from barnabas_operator.resources.template import TemplateMetadata


def as_the_cluster_says(run: MaintenanceJob, cluster: Cluster, pull_secrets: Sequence[str] = ()) -> MaintenanceJob:
    """Return the MaintenanceJob with a complete `spec.template.pod` (`pod_template`)."""
    template = RunTemplate(pod=pod_template(run.spec.template.pod, cluster, pull_secrets))
    return replace(run, spec=replace(run.spec, template=template))


def pod_template(declared: RunPodTemplate, cluster: Cluster, pull_secrets: Sequence[str]) -> RunPodTemplate:
    """Return the template with the Cluster's labels and annotations added; the run's own values take precedence.

    If the template has no image pull secrets, it gets `pull_secrets`. They are in pods and not in ServiceAccounts,
    because other controllers add secrets to the accounts of a namespace, in a list that has only one owner.
    """
    of_all, own = cluster.spec.template.metadata, declared.metadata
    labels, annotations = {**of_all.labels, **own.labels}, {**of_all.annotations, **own.annotations}
    spec = declared.spec
    if not spec.image_pull_secrets:
        spec = replace(spec, image_pull_secrets=tuple(ImagePullSecret(name=name) for name in pull_secrets))
    return replace(declared, metadata=TemplateMetadata(labels=labels, annotations=annotations), spec=spec)


def pod_meta(template: RunPodTemplate, labels: Mapping[str, str], annotations: Mapping[str, str]) -> KubeObject:
    """Return the metadata of a pod. `labels` and `annotations` take precedence over the template's."""
    said = template.metadata
    meta = {"labels": {**said.labels, **labels}, "annotations": {**said.annotations, **annotations}}
    return {name: each for name, each in meta.items() if each}


def placement(template: RunPodTemplate) -> KubeObject:
    """Return the fields of a pod's spec that choose its node."""
    spec = template.spec
    said = {"nodeSelector": spec.node_selector, "tolerations": list(spec.tolerations), "affinity": spec.affinity}
    return {name: each for name, each in said.items() if each}


def admission(template: RunPodTemplate) -> KubeObject:
    """Return the fields of a pod's spec for image pull secrets and priority."""
    secrets, priority = template.spec.image_pull_secrets, template.spec.priority_class_name
    return {
        **({"imagePullSecrets": [{"name": each.name} for each in secrets]} if secrets else {}),
        **({"priorityClassName": priority} if priority is not None else {}),
    }
