"""The pod template for the executors of a maintenance run, stored in an annotation of the driver's pod.

A downwardAPI volume mounts the annotation as a file, because Spark's driver reads the template from a file.
"""

from typing import Final

import msgspec

from barnabas_operator.manifests.client_access import ClientAccess
from barnabas_operator.manifests.kube_object import KubeObject
from barnabas_operator.manifests.restricted import CONTAINER_SECURITY, POD_SECURITY, USER_ID
from barnabas_operator.manifests.run_pod_template import admission, placement, pod_meta
from barnabas_operator.planning.maintenance.run_checks import EXECUTOR_POD, TMP, TMP_PATH
from barnabas_operator.planning.maintenance.spark_conf import EXECUTOR_TEMPLATE, EXECUTOR_TEMPLATE_PATH
from barnabas_operator.resources.maintenance_job import MaintenanceJob

ANNOTATION: Final = "barnabas.dev/executor-pod"
END_S_MAX: Final = 5
"""The grace period of executors. It is short, because uncommitted output is discarded anyway."""
VOLUME: Final[KubeObject] = {
    "name": EXECUTOR_POD,
    "downwardAPI": {
        "items": [{"path": EXECUTOR_TEMPLATE, "fieldRef": {"fieldPath": f"metadata.annotations['{ANNOTATION}']"}}]
    },
}
MOUNT: Final[KubeObject] = {"name": EXECUTOR_POD, "mountPath": EXECUTOR_TEMPLATE_PATH, "readOnly": True}


def executor_annotation(run: MaintenanceJob, access: ClientAccess) -> dict[str, str]:
    """Return the annotation of the driver's pod that contains the executors' pod template as JSON."""
    return {ANNOTATION: msgspec.json.encode(executor_pod(run, access), order="sorted").decode()}


def executor_pod(run: MaintenanceJob, access: ClientAccess) -> KubeObject:
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
        "terminationGracePeriodSeconds": END_S_MAX,
        "securityContext": {**POD_SECURITY, "fsGroup": USER_ID, "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": [container],
        "volumes": [{"name": TMP, "emptyDir": {}}, *access.volumes],
        **placement(template),
        **admission(template),
    }
    meta = pod_meta(template, {}, {})
    return {"apiVersion": "v1", "kind": "Pod", **({"metadata": meta} if meta else {}), "spec": spec}
