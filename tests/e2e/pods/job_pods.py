"""Maintenance jobs as pods, by hand-made manifests: the driver, its account and Service, and the volume of archives."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from e2e.pods.castle import Castle

ARCHIVES: Final = "archives"
MOUNT: Final = "/archives"
ACCOUNT: Final = "driver"
CPU: Final = "300m"
"""Pods that request none are the last to get any on a busy machine."""
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What a JVM is best with that does not live long."""
# A driver makes, watches and removes executors and the ConfigMap of their conf. It may not touch claims: those of the
# brokers are there, too. The patch of its own pod is its progress.
RULES: Final = [
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["create", "get", "list", "watch", "patch", "delete", "deletecollection"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list", "delete", "deletecollection"]},
]
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def prepare(castle: Castle) -> None:
    """What all jobs of the namespace share."""
    castle.kubectl("apply", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": _shared(castle)}))


def _shared(castle: Castle) -> list[dict[str, Any]]:
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": castle.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}},
        {"apiVersion": rbac, "kind": "Role", "metadata": {"name": ACCOUNT}, "rules": RULES},
        {
            "apiVersion": rbac,
            "kind": "RoleBinding",
            "metadata": {"name": ACCOUNT},
            "roleRef": role,
            "subjects": [subject],
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": ARCHIVES}, "spec": claim},
    ]


def conf(castle: Castle, name: str, image: str, executors: int) -> dict[str, str]:
    """All of Spark's; `$(NAME)` is Kubernetes' to replace."""
    volume = f"spark.kubernetes.executor.volumes.persistentVolumeClaim.{ARCHIVES}"
    return {
        "spark.kubernetes.namespace": castle.namespace,
        "spark.driver.host": f"{name}-driver.{castle.namespace}.svc",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.port": "7078",
        "spark.driver.blockManager.port": "7079",
        "spark.driver.memory": "512m",
        "spark.driver.defaultJavaOptions": SHORT_LIVED,
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
        "spark.kubernetes.driver.pod.name": "$(BARNABAS_POD_NAME)",
        "spark.kubernetes.container.image": image,
        "spark.kubernetes.driver.service.deleteOnTermination": "false",
        "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
        "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
        "spark.app.name": name,
        "spark.kubernetes.executor.podTemplateFile": "/opt/barnabas/executor-pod.yaml",
        "spark.kubernetes.executor.request.cores": CPU,
        "spark.executor.instances": str(executors),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        f"{volume}.mount.path": MOUNT,
        f"{volume}.options.claimName": ARCHIVES,
        "spark.sql.shuffle.partitions": "2",
    }


def job(castle: Castle, name: str, image: str, words: Sequence[str], executors: int) -> list[dict[str, Any]]:
    """A Job whose pods are drivers, and the Service by which executors find the one that runs."""
    label = {"barnabas.dev/maintenance-job": name}
    settings = conf(castle, name, image, executors) if executors else {"spark.driver.defaultJavaOptions": SHORT_LIVED}
    master = "k8s://https://kubernetes.default.svc:443" if executors else "local[*]"
    given = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    container = {
        "name": "driver",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["barnabas", "jobs", "run", *words, "--master", master, *given],
        "env": [_field("BARNABAS_POD_NAME", "metadata.name"), _field("BARNABAS_POD_NAMESPACE", "metadata.namespace")],
        "ports": [{"name": "driver", "containerPort": 7078}, {"name": "blocks", "containerPort": 7079}],
        "resources": {"requests": {"cpu": CPU}},
        "securityContext": SECURITY,
        "volumeMounts": [{"name": ARCHIVES, "mountPath": MOUNT}, {"name": "tmp", "mountPath": "/tmp"}],
    }
    pod = {
        "containers": [container],
        "restartPolicy": "Never",
        "serviceAccountName": ACCOUNT,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001},
        "volumes": [
            {"name": ARCHIVES, "persistentVolumeClaim": {"claimName": ARCHIVES}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
    fail = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2, 3]}}]}
    spec = {"backoffLimit": 3, "podFailurePolicy": fail, "template": {"metadata": {"labels": label}, "spec": pod}}
    ports = [{"name": "driver", "port": 7078}, {"name": "blocks", "port": 7079}]
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": label, "ports": ports}
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"{name}-driver"}, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec},
    ]


def _field(name: str, path: str) -> Mapping[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


class JobPods:
    """One run as its pods show it."""

    def __init__(self, castle: Castle, name: str) -> None:
        self._castle = castle
        self.name = name

    def drivers(self) -> list[dict[str, Any]]:
        """All that were, the oldest first."""
        found = self._castle.items("pod", f"barnabas.dev/maintenance-job={self.name}")
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def executors(self) -> list[dict[str, Any]]:
        """Those that are there, of all drivers."""
        found = self._castle.items("pod", "spark-role=executor")
        return [pod for pod in found if pod["metadata"]["name"].startswith(f"{self.name}-")]

    def progress(self) -> dict[str, Any]:
        """What the last driver told of itself."""
        annotations = [pod["metadata"].get("annotations", {}) for pod in self.drivers()[-1:]]
        told = [each["barnabas.dev/progress"] for each in annotations if "barnabas.dev/progress" in each]
        return dict(json.loads(told[0])) if told else {"records": {"done": 0}}

    def ending(self, driver: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The termination message of a driver that has ended; the last where none is given. Empty while it runs."""
        pods = [driver] if driver else self.drivers()[-1:]
        states = [each["state"] for pod in pods for each in pod["status"].get("containerStatuses", ())]
        ended = [state["terminated"] for state in states if "terminated" in state]
        return {} if not ended else {"code": ended[0]["exitCode"], **json.loads(ended[0].get("message") or "{}")}
