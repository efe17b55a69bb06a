"""The Spark configuration of a run, whose driver is the pod of a Job and creates the executors."""

from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_operator.planning.object_names import (
    application_name,
    driver_name,
    maintenance_name,
    run_labels,
    shortened_name,
)
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import PodResources, RunVolume
from barnabas_operator.resources.quantity import quantity_value

DRIVER_PORT: Final = 7078
BLOCKS_PORT: Final = 7079
APP_NAME_LENGTH_MAX: Final = 28
"""The maximum length of `spark.app.name`, without the id that Spark appends in the names of executors."""
HEAP_PERCENT: Final = 60
"""The percentage of a pod's memory for the heap; Python, the network and the JVM itself use the remaining memory."""
MEMORY_DEFAULT: Final = "2Gi"
MIB: Final = 1 << 20
KUBEFLOW_LABEL: Final = "sparkoperator.k8s.io/app-name"
"""The label by which Kubeflow's Spark operator finds the executors of an application."""
EXECUTOR_TEMPLATE_PATH: Final = "/etc/barnabas"
EXECUTOR_TEMPLATE: Final = "executor-pod.yaml"
"""The file in the driver's pod with the pod template of the executors."""
POD_NAME: Final = "$(BARNABAS_POD_NAME)"
"""The reference to a variable with the pod name, which Kubernetes expands in the driver's container."""
KUBERNETES: Final = "k8s://https://kubernetes.default.svc:443"
RUN: Final = "spark.barnabas.run"
"""The Spark setting with the uid of the run. By the uid, a driver finds the state that an earlier attempt stored."""
OPERATOR_SETS: Final = (
    RUN,
    "spark.app.name",
    "spark.master",
    "spark.submit.",
    "spark.driver.host",
    "spark.driver.port",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.memory",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executorEnv.",
    # The driver's program authenticates and encrypts Spark's connections.
    "spark.authenticate",
    "spark.authenticate.",
    "spark.network.crypto.",
    "spark.ssl.rpc.",
    "spark.eventLog.enabled",
    "spark.eventLog.dir",
    "spark.kubernetes.namespace",
    "spark.kubernetes.container.image",
    "spark.kubernetes.driver.",
    "spark.kubernetes.authenticate.",
    "spark.kubernetes.executor.podNamePrefix",
    "spark.kubernetes.executor.podTemplateFile",
    "spark.kubernetes.executor.label.",
    "spark.kubernetes.executor.request.cores",
    "spark.kubernetes.executor.limit.cores",
    "spark.kubernetes.executor.secretKeyRef.",
    "spark.kubernetes.executor.volumes.",
)
"""The settings that a run must not set; an entry that ends in a dot stands for all settings with that prefix."""


def literal(text: str) -> str:
    """Return the text with each `$` doubled, because Kubernetes replaces `$(NAME)` by a variable's value.

    Kubernetes replaces `$$` by `$`.
    """
    return text.replace("$", "$$")


def is_set_by_operator(name: str) -> bool:
    """True if the operator sets the setting, so that a run must not set it."""
    return any(name == each or (each.endswith(".") and name.startswith(each)) for each in OPERATOR_SETS)


def master_of(run: MaintenanceJob) -> str:
    """Return Spark's master: Kubernetes, or `local[N]` if the run has no executors.

    `local[*]` would use as many cores as the node has, and not as many as the pod may use.
    """
    return KUBERNETES if run.spec.executors else f"local[{whole_cores(run.spec.driver.resources)}]"


def spark_conf(run: MaintenanceJob, cluster: str, image: str) -> Mapping[str, str]:
    """Return the Spark settings of the run; the operator's settings override the settings in the spec.

    Kubernetes expands the variable `POD_NAME` in the values.
    """
    own = {
        **run.spec.spark_conf,
        RUN: run.metadata.uid or "",
        "spark.driver.memory": f"{heap_mib(run.spec.driver.resources)}m",
    }
    logs = run.spec.event_logs
    if logs is not None:
        own |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": f"file:{logs.mount_path}"}
    return own if not run.spec.executors else own | _driver(run, cluster, image) | dict(_executors(run, cluster))


def _driver(run: MaintenanceJob, cluster: str, image: str) -> dict[str, str]:
    meta, of_kubernetes = run.metadata, "spark.kubernetes"
    namespace, account = meta.namespace or "default", maintenance_name(cluster)
    return {
        "spark.app.name": shortened_name(meta.name, APP_NAME_LENGTH_MAX),
        "spark.driver.host": f"{driver_name(meta.name)}.{namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": str(DRIVER_PORT),
        "spark.driver.blockManager.port": str(BLOCKS_PORT),
        f"{of_kubernetes}.namespace": namespace,
        f"{of_kubernetes}.driver.pod.name": POD_NAME,
        f"{of_kubernetes}.container.image": image,
        f"{of_kubernetes}.authenticate.executor.serviceAccountName": account,
        f"{of_kubernetes}.executor.podTemplateFile": f"{EXECUTOR_TEMPLATE_PATH}/{EXECUTOR_TEMPLATE}",
        # The driver has rights only for pods and ConfigMaps, not for Services and PersistentVolumeClaims.
        f"{of_kubernetes}.driver.service.deleteOnTermination": "false",
        f"{of_kubernetes}.driver.ownPersistentVolumeClaim": "false",
        f"{of_kubernetes}.driver.reusePersistentVolumeClaim": "false",
    }


def _executors(run: MaintenanceJob, cluster: str) -> Iterator[tuple[str, str]]:
    resources, executor = run.spec.executor.resources, "spark.kubernetes.executor"
    heap, whole = heap_mib(resources), memory_mib(resources)
    yield "spark.executor.instances", str(run.spec.executors)
    yield "spark.executor.memory", f"{heap}m"
    yield "spark.executor.memoryOverhead", f"{whole - heap}m"
    yield "spark.executor.cores", str(whole_cores(resources))
    for field, amounts in (("request", resources.requests), ("limit", resources.limits)):
        if "cpu" in amounts:
            yield f"{executor}.{field}.cores", str(amounts["cpu"])
    for name, value in run_labels(cluster, run.metadata.name, "executor").items():
        yield f"{executor}.label.{name}", value
    if run.spec.backend == "Kubeflow":
        yield f"{executor}.label.{KUBEFLOW_LABEL}", application_name(run.metadata.name)
    for volume in run.spec.volumes:
        yield from _volume(volume)
    for each in run.spec.env:
        if each.secret_key_ref is not None:
            yield f"{executor}.secretKeyRef.{each.name}", f"{each.secret_key_ref.name}:{each.secret_key_ref.key}"
        else:
            yield f"spark.executorEnv.{each.name}", literal(each.value or "")  # Kubernetes would expand `$(NAME)`.


def _volume(volume: RunVolume) -> Iterator[tuple[str, str]]:
    prefix = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.{volume.name}"
    yield f"{prefix}.mount.path", volume.mount_path
    yield f"{prefix}.mount.readOnly", str(volume.read_only).lower()
    yield f"{prefix}.options.claimName", volume.claim_name


def memory_mib(resources: PodResources) -> int:
    """Return the memory of a pod in MiB: the limit, or else the request, or else `MEMORY_DEFAULT`."""
    memory = resources.limits.get("memory", resources.requests.get("memory", MEMORY_DEFAULT))
    return int(quantity_value(memory)) // MIB


def heap_mib(resources: PodResources) -> int:
    """Return the heap of a pod's JVM in MiB."""
    return memory_mib(resources) * HEAP_PERCENT // 100


def whole_cores(resources: PodResources) -> int:
    """Return the number of tasks that Spark runs in a pod at the same time: its whole cores, at least 1."""
    cpu = resources.limits.get("cpu", resources.requests.get("cpu", 1))
    return max(1, int(quantity_value(cpu)))
