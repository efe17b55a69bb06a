"""The Kubernetes objects of a maintenance run: the driver's Job and Service, a NetworkPolicy, and a ServiceAccount.

Spark's driver reads the pod template of its executors from a file. An annotation of the driver's pod contains the
template, and a downwardAPI volume mounts the annotation.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from barnabas_operator.manifests.access import account_with_role
from barnabas_operator.manifests.client_access import ClientAccess, client_access
from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.restricted import CONTAINER_SECURITY, POD_SECURITY, USER_ID
from barnabas_operator.manifests.run_pod_template import admission, placement, pod_meta
from barnabas_operator.planning.maintenance.observed_run import DRIVER, FINAL_CODES
from barnabas_operator.planning.maintenance.run_checks import BOOTSTRAP, EVENT_LOGS, EXECUTOR_POD, TMP, TMP_PATH
from barnabas_operator.planning.maintenance.spark_conf import (
    BLOCKS_PORT,
    DRIVER_PORT,
    EXECUTOR_TEMPLATE,
    EXECUTOR_TEMPLATE_PATH,
    POD_NAME,
    literal,
    master_of,
    spark_conf,
)
from barnabas_operator.planning.object_names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    driver_name,
    labels_of_run,
    maintenance_name,
    run_labels,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_roles import DRIVER_ROLE
from barnabas_operator.resources.job_table import JOB_TABLE
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import EnvVar, RunVolume

TERMINATED: Final = 143
"""The exit code of a driver that was ended by SIGTERM; the Job does not count it as a failure."""
FAILED_LATE: Final = 75
"""The exit code of a continuous archive that failed after an hour or more; the Job does not count it as a failure."""
PORTS: Final = {"driver-rpc": DRIVER_PORT, "blocks": BLOCKS_PORT}
END_S_MAX: Final = 60
"""The grace period in which a driver deletes its executors and reports its progress."""
SECURITY: Final = {**POD_SECURITY, "fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"}
EXECUTOR_END_S_MAX: Final = 5
"""The grace period of executors. It is short, because uncommitted output is discarded anyway."""
EXECUTOR_ANNOTATION: Final = "barnabas.dev/executor-pod"
EXECUTOR_VOLUME: Final[KubeObject] = {
    "name": EXECUTOR_POD,
    "downwardAPI": {
        "items": [
            {"path": EXECUTOR_TEMPLATE, "fieldRef": {"fieldPath": f"metadata.annotations['{EXECUTOR_ANNOTATION}']"}}
        ]
    },
}
EXECUTOR_MOUNT: Final[KubeObject] = {"name": EXECUTOR_POD, "mountPath": EXECUTOR_TEMPLATE_PATH, "readOnly": True}


def run_client(run: MaintenanceJob, cluster: Cluster) -> ClientAccess:
    """Return the brokers' address and the Secret for a run's pods, without the Secret if the job only reads files."""
    access = client_access(cluster, maintenance_name(cluster.metadata.name))
    return access if _asks_brokers(run) else access._replace(secret="")


def run_access(cluster: Cluster) -> list[KubeObject]:
    """Return the ServiceAccount and the RoleBinding for the pods of a Cluster's MaintenanceJobs."""
    return account_with_role(cluster, maintenance_name(cluster.metadata.name), DRIVER_ROLE)


def driver_service(run: MaintenanceJob, cluster: str) -> KubeObject:
    """Return the headless Service by which executors connect to the driver, even before the driver is ready."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": dict(run_labels(cluster, run.metadata.name, DRIVER)),
        "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in PORTS.items()],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": run_meta(run, cluster), "spec": spec}


def run_policy(run: MaintenanceJob, cluster: str) -> KubeObject:
    """Return the NetworkPolicy by which only pods of the run connect to its driver and executors.

    Spark authenticates them as well; but its file server sends the driver's files to anybody, and the page that
    `spark.ui.enabled` opens asks nobody for a password. `kubectl port-forward` still reaches the page.
    """
    pods = {"matchLabels": dict(labels_of_run(cluster, run.metadata.name))}
    spec = {"podSelector": pods, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": pods}]}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": run_meta(run, cluster),
        "spec": spec,
    }


def driver_job(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> KubeObject:
    """Return the driver's Job, which is suspended until the MaintenanceJob is marked as started."""
    deadline = run.spec.active_deadline_seconds
    spec: KubeObject = {
        "suspend": True,
        "backoffLimit": run.spec.backoff_limit,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules()},
        **({"activeDeadlineSeconds": deadline} if deadline is not None else {}),
        "template": {
            "metadata": driver_meta(run, cluster, access),
            "spec": driver_pod(run, cluster, access, image),
        },
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": run_meta(run, cluster), "spec": spec}


def _failure_rules() -> list[KubeObject]:
    """Return the podFailurePolicy rules: wrong options or data fail the Job at once, and disruptions are not counted.

    The failure of a continuous archive after an hour or more is not counted either, because a Job never resets its
    count of failures.
    """
    return [
        {"action": "FailJob", "onExitCodes": _codes(*sorted(FINAL_CODES))},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": _codes(FAILED_LATE, TERMINATED)},
    ]


def _codes(*values: int) -> KubeObject:
    return {"containerName": DRIVER, "operator": "In", "values": list(values)}


def driver_meta(run: MaintenanceJob, cluster: str, access: ClientAccess) -> KubeObject:
    """Return the metadata of a driver's pod."""
    annotations = {}
    if run.spec.executors:
        annotations[EXECUTOR_ANNOTATION] = msgspec.json.encode(_executor_pod(run, access), order="sorted").decode()
    return pod_meta(run.spec.template.pod, run_labels(cluster, run.metadata.name, DRIVER), annotations)


def driver_pod(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> KubeObject:
    """Return the spec of a driver's pod."""
    return {
        "restartPolicy": "Never",
        "serviceAccountName": maintenance_name(cluster),
        # Even without executors, the driver reports its progress to the API server.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": END_S_MAX,
        "securityContext": SECURITY,
        "volumes": [
            {"name": TMP, "emptyDir": {}},
            *([EXECUTOR_VOLUME] if run.spec.executors else ()),
            *access.volumes,
            *(_volume(each) for each in _volumes(run)),
        ],
        "containers": [_container(run, cluster, access, image)],
        **placement(run.spec.template.pod),
        **admission(run.spec.template.pod),
    }


def _executor_pod(run: MaintenanceJob, access: ClientAccess) -> KubeObject:
    """Return the executors' pod template, without the fields that Spark sets.

    The file images/executor-pod.yaml must have the same content.
    """
    template = run.spec.template.pod
    container = {
        "name": "executor",
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [{"name": TMP, "mountPath": TMP_PATH}, *access.mounts],
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": EXECUTOR_END_S_MAX,
        "securityContext": SECURITY,
        "containers": [container],
        "volumes": [{"name": TMP, "emptyDir": {}}, *access.volumes],
        **placement(template),
        **admission(template),
    }
    meta = pod_meta(template, {}, {})
    return {"apiVersion": "v1", "kind": "Pod", **({"metadata": meta} if meta else {}), "spec": spec}


def _container(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> KubeObject:
    resources = run.spec.driver.resources
    return {
        "name": DRIVER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["barnabas", "jobs", *job_words(run, cluster, access, image)],
        "env": [*_own_env(), *map(_env, run.spec.env)],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in PORTS.items()],
        "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
        "securityContext": dict(CONTAINER_SECURITY),
        "volumeMounts": [
            {"name": TMP, "mountPath": TMP_PATH},
            *([EXECUTOR_MOUNT] if run.spec.executors else ()),
            *access.mounts,
            *(_mount(each) for each in _volumes(run)),
        ],
    }


def job_words(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> list[str]:
    """Return the container's arguments for `barnabas jobs`, escaped so that Kubernetes expands no `$(VARIABLE)`."""
    options, conf = {**_filled_in(run, access), **run.spec.options}, spark_conf(run, cluster, image)
    return [
        "run",
        run.spec.job,
        *access.options,
        *(f"--option={name}={literal(value)}" for name, value in options.items()),
        f"--master={master_of(run)}",
        *(f"--conf={name}={value if value == POD_NAME else literal(value)}" for name, value in sorted(conf.items())),
    ]


def _filled_in(run: MaintenanceJob, access: ClientAccess) -> dict[str, str]:
    return {BOOTSTRAP: access.bootstrap} if _asks_brokers(run) else {}


def _asks_brokers(run: MaintenanceJob) -> bool:
    return BOOTSTRAP in JOB_TABLE[run.spec.job].options


def _own_env() -> list[KubeObject]:
    """Return the environment variables of every driver, without those that the run declares.

    SPARK_LOCAL_DIRS is not set, because Spark would also mount it in executors, in conflict with their volume at /tmp.
    """
    fields = {"BARNABAS_POD_NAME": "metadata.name", "BARNABAS_POD_NAMESPACE": "metadata.namespace"}
    return [
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
        {"name": "HOME", "value": "/tmp"},
    ]


def _env(each: EnvVar) -> KubeObject:
    key = each.secret_key_ref
    if key is not None:
        return {"name": each.name, "valueFrom": {"secretKeyRef": {"name": key.name, "key": key.key}}}
    return {"name": each.name, "value": literal(each.value or "")}


def _volumes(run: MaintenanceJob) -> tuple[RunVolume, ...]:
    logs = run.spec.event_logs
    if logs is None:
        return run.spec.volumes
    return (*run.spec.volumes, RunVolume(name=EVENT_LOGS, mount_path=logs.mount_path, claim_name=logs.claim_name))


def _volume(volume: RunVolume) -> KubeObject:
    claim = {"claimName": volume.claim_name, "readOnly": volume.read_only}
    return {"name": volume.name, "persistentVolumeClaim": claim}


def _mount(volume: RunVolume) -> KubeObject:
    return {"name": volume.name, "mountPath": volume.mount_path, "readOnly": volume.read_only}


def run_meta(run: MaintenanceJob, cluster: str) -> Mapping[str, Any]:
    """Return the `metadata` for a Kubernetes object of a run. The MaintenanceJob owns the object."""
    meta = run.metadata
    return {
        "name": driver_name(meta.name),
        "namespace": meta.namespace or "default",
        "labels": {**run_labels(cluster, meta.name, DRIVER), MANAGED_BY_LABEL: MANAGED_BY},
        "ownerReferences": [run.owner_reference],
    }
