"""The CronJobs of a Cluster's maintenance entries, and the ServiceAccount of the pods that create MaintenanceJobs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from barnabas_operator.manifests.kube_object import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    KubeObject,
    account_with_role,
    kube_object,
)
from barnabas_operator.manifests.maintenance_run import admission, pod_meta, pod_template
from barnabas_operator.planning.brokers.pods import is_owned
from barnabas_operator.planning.object_names import NAME_LABEL, SCHEDULE_LABEL, schedule_name, starter_name
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import STARTER_ROLE
from barnabas_operator.resources.maintenance_run import MaintenanceEntry, RunTemplate

CONTAINER: Final = "start"
STARTS_MAX: Final = 6
"""The maximum number of retries of a CronJob's pod that ends before its MaintenanceJob has ended."""
EXIT_CODES: Final = (1, 2)
"""The exit codes after which the pod is not retried: the run has failed, or can never start."""
OF_JOBS: Final = "batch.kubernetes.io/"


def starter_access(cluster: Cluster) -> list[KubeObject]:
    """Return the ServiceAccount of the CronJobs' pods and its RoleBinding; empty if `spec.maintenance` is empty."""
    if not cluster.spec.maintenance:
        return []
    return account_with_role(cluster, starter_name(cluster.metadata.name), STARTER_ROLE)


def schedules(cluster: Cluster, image: str, pull_secrets: Sequence[str] = ()) -> list[KubeObject]:
    """Return a CronJob for each entry of `spec.maintenance`. `image` is the operator's image."""
    entries = [
        replace(each, template=RunTemplate(pod=pod_template(each.template.pod, cluster, pull_secrets)))
        for each in cluster.spec.maintenance
    ]
    return [_cron_job(cluster, each, image) for each in entries]


def leftover_schedules(cluster: Cluster, found: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the Cluster's CronJobs that no longer have an entry in `spec.maintenance`."""
    wanted = {schedule_name(cluster.metadata.name, each.name) for each in cluster.spec.maintenance}
    return [each for each in found if is_owned(cluster, each) and each["metadata"]["name"] not in wanted]


def _cron_job(cluster: Cluster, entry: MaintenanceEntry, image: str) -> KubeObject:
    late_s = entry.starting_deadline_seconds
    return kube_object(
        "batch/v1",
        "CronJob",
        cluster,
        schedule_name(cluster.metadata.name, entry.name),
        more_labels=_labels(entry),
        spec={
            "schedule": entry.schedule,
            **({"timeZone": entry.time_zone} if entry.time_zone is not None else {}),
            **({"startingDeadlineSeconds": late_s} if late_s is not None else {}),
            "suspend": entry.suspend,
            "concurrencyPolicy": entry.concurrency_policy,
            "successfulJobsHistoryLimit": entry.successful_jobs_history_limit,
            "failedJobsHistoryLimit": entry.failed_jobs_history_limit,
            "jobTemplate": {"metadata": {"labels": dict(_labels(entry))}, "spec": _job(cluster, entry, image)},
        },
    )


def _labels(entry: MaintenanceEntry) -> Mapping[str, str]:
    return {NAME_LABEL: "barnabas-maintenance-start", SCHEDULE_LABEL: entry.name}


def _job(cluster: Cluster, entry: MaintenanceEntry, image: str) -> KubeObject:
    final = {"containerName": CONTAINER, "operator": "In", "values": list(EXIT_CODES)}
    lost = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    kept_s = entry.ttl_seconds_after_finished
    meta = pod_meta(entry.template.pod, _labels(entry), {})
    return {
        "backoffLimit": STARTS_MAX,
        **({"ttlSecondsAfterFinished": kept_s} if kept_s is not None else {}),
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": final}, lost]},
        "template": {"metadata": meta, "spec": _pod(cluster, entry, image)},
    }


def _pod(cluster: Cluster, entry: MaintenanceEntry, image: str) -> KubeObject:
    """Return the spec of a CronJob's pod. The pod creates a MaintenanceJob, and waits until the MaintenanceJob ends."""
    return {
        "restartPolicy": "Never",
        "serviceAccountName": starter_name(cluster.metadata.name),
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "securityContext": dict(POD_SECURITY),
        **admission(entry.template.pod),
        "containers": [
            {
                "name": CONTAINER,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "args": ["start-maintenance", cluster.metadata.name, entry.name],
                "env": [
                    _env("POD_NAMESPACE", "metadata.namespace"),
                    _env("JOB_NAME", f"metadata.labels['{OF_JOBS}job-name']"),
                    _env("JOB_UID", f"metadata.labels['{OF_JOBS}controller-uid']"),
                ],
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": dict(CONTAINER_SECURITY),
            }
        ],
    }


def _env(name: str, path: str) -> KubeObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
