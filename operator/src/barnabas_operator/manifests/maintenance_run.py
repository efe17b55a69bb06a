"""The Kubernetes objects of maintenance runs, and the CronJobs that start runs.

A run has the driver's Job and Service, a NetworkPolicy, and a ServiceAccount. Spark's driver reads the pod template of
its executors from a file. An annotation of the driver's pod contains the template, and a downwardAPI volume mounts the
annotation.

With Kubeflow's Spark operator a run is a SparkApplication. The driver's pod runs the same command as the pod of a Job
(`barnabas jobs driver` in the image), in Spark's client mode. So progress, results, exit codes and executors are the
same with both backends. Kubeflow's webhook is not needed, because the pod template contains all volumes of the driver.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from barnabas_operator.manifests.kube_object import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    USER_ID,
    ClientAccess,
    KubeObject,
    account_with_role,
    client_access,
    kube_object,
)
from barnabas_operator.planning.brokers.pods import is_owned
from barnabas_operator.planning.maintenance.observed_run import DRIVER, FINAL_CODES, SPARK_DRIVER
from barnabas_operator.planning.maintenance.run_checks import (
    BLOCKS_PORT,
    BOOTSTRAP,
    CATALOG,
    DRIVER_PORT,
    EVENT_LOGS,
    EXECUTOR_POD,
    EXECUTOR_TEMPLATE,
    EXECUTOR_TEMPLATE_PATH,
    NAMESPACE,
    POD_NAME,
    TMP,
    TMP_PATH,
    heap_mib,
    literal,
    master_of,
    memory_mib,
    spark_conf,
    whole_cores,
)
from barnabas_operator.planning.object_names import (
    MANAGED_BY,
    MANAGED_BY_LABEL,
    NAME_LABEL,
    SCHEDULE_LABEL,
    application_name,
    driver_name,
    labels_of_run,
    maintenance_name,
    run_labels,
    schedule_name,
    starter_name,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import DRIVER_ROLE, STARTER_ROLE
from barnabas_operator.resources.kind import TemplateMetadata
from barnabas_operator.resources.maintenance_run import (
    JOB_TABLE,
    EnvVar,
    ImagePullSecret,
    MaintenanceEntry,
    MaintenanceJob,
    PodResources,
    RunPodTemplate,
    RunTemplate,
    RunVolume,
)


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
    declared = template.metadata
    meta = {"labels": {**declared.labels, **labels}, "annotations": {**declared.annotations, **annotations}}
    return {name: each for name, each in meta.items() if each}


def placement(template: RunPodTemplate) -> KubeObject:
    """Return the fields of a pod's spec that choose its node."""
    spec = template.spec
    fields = {"nodeSelector": spec.node_selector, "tolerations": list(spec.tolerations), "affinity": spec.affinity}
    return {name: each for name, each in fields.items() if each}


def admission(template: RunPodTemplate) -> KubeObject:
    """Return the fields of a pod's spec for image pull secrets and priority."""
    secrets, priority = template.spec.image_pull_secrets, template.spec.priority_class_name
    return {
        **({"imagePullSecrets": [{"name": each.name} for each in secrets]} if secrets else {}),
        **({"priorityClassName": priority} if priority is not None else {}),
    }


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
        *(f"--option={CATALOG}.{name}={literal(value)}" for name, value in sorted(run.spec.catalog.items())),
        *([f"--option={NAMESPACE}={run.spec.namespace}"] if run.spec.namespace is not None else ()),
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


API_VERSION: Final = "sparkoperator.k8s.io/v1beta2"
KIND: Final = "SparkApplication"
SPARK_VERSION: Final = "4.2.0"
"""The Spark version in the image of jobs."""
MAIN_FILE: Final = "local:///opt/barnabas/driver.py"
"""The main file that a SparkApplication must name. The file need not exist, because the image's command ignores it."""
RETRY_S: Final = 30
"""The pause in seconds before Kubeflow retries; meanwhile this operator deletes applications that would fail again."""
MADE_BY_SPARK: Final = frozenset({"command", "ports", "resources", "image", "imagePullPolicy"})


def spark_application(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> KubeObject:
    """Return the SparkApplication, which is suspended until the MaintenanceJob is marked as started."""
    spec: KubeObject = {
        "type": "Python",
        "pythonVersion": "3",
        "sparkVersion": SPARK_VERSION,
        "mode": "cluster",
        "suspend": True,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "mainApplicationFile": MAIN_FILE,
        "arguments": job_words(run, cluster, access, image),
        "restartPolicy": _restart_policy(run.spec.backoff_limit),
        "driver": _driver(run, cluster, access, image),
        "executor": _executor(run),
    }
    meta = {**run_meta(run, cluster), "name": application_name(run.metadata.name)}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": meta, "spec": spec}


def _restart_policy(retries: int) -> KubeObject:
    if not retries:
        return {"type": "Never"}
    names = "onFailure", "onSubmissionFailure"
    limits = {f"{name}Retries": retries for name in names}
    return {"type": "OnFailure", **limits, **{f"{name}RetryInterval": RETRY_S for name in names}}


def _driver(run: MaintenanceJob, cluster: str, access: ClientAccess, image: str) -> KubeObject:
    pod = driver_pod(run, cluster, access, image)
    (container,) = pod["containers"]
    kept = {name: value for name, value in container.items() if name not in MADE_BY_SPARK}
    meta = driver_meta(run, cluster, access)
    return {
        "podName": driver_name(run.metadata.name),
        "serviceAccount": maintenance_name(cluster),
        "labels": meta["labels"],
        **_size(run.spec.driver.resources),
        "template": {
            "metadata": meta,
            "spec": {**pod, "containers": [{**kept, "name": SPARK_DRIVER}]},
        },
    }


def _executor(run: MaintenanceJob) -> KubeObject:
    """Return the number and size of the executors. The driver starts them; Kubeflow's operator only displays them."""
    size = _size(run.spec.executor.resources)
    return {"instances": run.spec.executors, **size} if run.spec.executors else size


def _size(resources: PodResources) -> KubeObject:
    heap, requests, limits = heap_mib(resources), resources.requests, resources.limits
    return {
        "cores": whole_cores(resources),
        **({"coreRequest": str(requests["cpu"])} if "cpu" in requests else {}),
        **({"coreLimit": str(limits["cpu"])} if "cpu" in limits else {}),
        "memory": f"{heap}m",
        "memoryOverhead": f"{memory_mib(resources) - heap}m",
    }


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
                    _field_env("POD_NAMESPACE", "metadata.namespace"),
                    _field_env("JOB_NAME", f"metadata.labels['{OF_JOBS}job-name']"),
                    _field_env("JOB_UID", f"metadata.labels['{OF_JOBS}controller-uid']"),
                ],
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": dict(CONTAINER_SECURITY),
            }
        ],
    }


def _field_env(name: str, path: str) -> KubeObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
