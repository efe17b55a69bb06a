"""A maintenance run as a SparkApplication for Kubeflow's Spark operator.

The driver's pod runs the same command as the pod of a Job (`barnabas jobs driver` in the image), in Spark's client
mode. So progress, results, exit codes and executors are the same with both backends. Kubeflow's webhook is not needed,
because the pod template contains all volumes of the driver.
"""

from typing import Final

from barnabas_operator.manifests.client_access import ClientAccess
from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.maintenance_run import driver_meta, driver_pod, job_words, run_meta
from barnabas_operator.planning.maintenance.observed_run import SPARK_DRIVER
from barnabas_operator.planning.maintenance.spark_conf import heap_mib, memory_mib, whole_cores
from barnabas_operator.planning.object_names import application_name, driver_name, maintenance_name
from barnabas_operator.resources.maintenance_job import MaintenanceJob
from barnabas_operator.resources.maintenance_run import PodResources

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
