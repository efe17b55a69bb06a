"""What somebody has installed in the first weeks: Barnabas by its chart, two Clusters in namespaces of their own."""

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from e2e.pods.chart_release import Release
from e2e.pods.providers import Cluster
from e2e.weeks.tenant import Tenant
from harness.deadline import wait_for
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.etcd_backup import back_up, put_back
from local_kubernetes.images import ROOT
from local_kubernetes.kubectl import Kubectl

NAMESPACE: Final = "barnabas"
OPERATOR: Final = "deployment/barnabas-operator"
OPERATOR_PODS: Final = "-l=app.kubernetes.io/name=barnabas-operator"
CRDS: Final = ROOT / "crds"
SECONDS_MAX: Final = 300.0
LOG_LINES: Final = 60


class Pod(NamedTuple):
    """What tells one from another of that name, and a life of it from another."""

    uid: str
    started: str
    """When its first container was, as Kubernetes writes times; empty where it does not run."""


NO_POD: Final = Pod("", "")


class Site:
    """On a Kubernetes that nobody else uses."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        assert cluster.plane is not None, "the provider must be one that stops the API server and etcd"
        self._cluster = cluster
        self._backup = folder / "etcd-backup"
        self.plane: ControlPlane = cluster.plane
        self.tenants = (Tenant(cluster, 0), Tenant(cluster, 1))
        self._release = Release(cluster, NAMESPACE)

    def install(self) -> None:
        """Returns when both Clusters are ready and are written to."""
        for name in (NAMESPACE, *(tenant.name for tenant in self.tenants)):
            self.kubectl("create", "namespace", name)
        self.release("install")
        can_grow = '{"allowVolumeExpansion":true}'
        self.kubectl("patch", "storageclass", "standard", "--type=merge", f"--patch={can_grow}")
        for tenant in self.tenants:
            tenant.apply()
        for tenant in self.tenants:
            tenant.begin()
        self.back_up()

    def release(self, verb: str) -> None:
        """helm, always with the same values. State documents can be deleted: whoever can, does it some day."""
        namespaces = ",".join(tenant.name for tenant in self.tenants)
        self._release(verb, f"watchNamespaces={{{namespaces}}}", "keepMetadata.enabled=false")

    def close(self) -> None:
        """Nobody looks at it any more."""
        for tenant in self.tenants:
            tenant.close()

    @property
    def kubectl(self) -> Kubectl:
        """For what belongs to no tenant."""
        return self._cluster.kubectl

    def apply(self) -> None:
        """All manifests of all tenants."""
        for tenant in self.tenants:
            tenant.apply()

    def await_whole(self) -> None:
        """Returns when all is as declared, whoever writes and reads goes on, and the operator is there."""
        self.await_operator()
        for tenant in self.tenants:
            tenant.await_ready()
            tenant.traffic.await_progress()

    def await_operator(self) -> None:
        """Returns when Kubernetes counts as many of its pods as ready as there are to be."""
        self.operator("rollout", "status", OPERATOR, f"--timeout={SECONDS_MAX:.0f}s")

    def operator(self, *arguments: str) -> str:
        """kubectl where the chart is."""
        return self.kubectl("-n", NAMESPACE, *arguments)

    def kill_operator(self) -> None:
        """kill -9 of the one that acts; returns when another one does, or another life of it."""
        before = wait_for(self.lease_holder, seconds_max=SECONDS_MAX)
        self._cluster.crash(NAMESPACE, pod_of(before))
        wait_for(self.lease_holder, lambda now: now not in ("", before), SECONDS_MAX)

    def lease_holder(self) -> str:
        """The life of an operator that acts: its pod and a number; empty while the pod that did is gone."""
        holder = self.operator("get", "lease", "barnabas-operator", "-ojsonpath={.spec.holderIdentity}")
        return holder if pod_of(holder) in self.pods() else ""

    def back_up(self) -> None:
        """etcd as it is now, for `restore`."""
        back_up(self.plane, self._backup)

    def restore(self) -> None:
        """etcd as it was at the last `back_up`; returns when nodes run the pods that it knows and no others."""
        before, began = self.pods(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        put_back(self.plane, self._backup)
        others = {name: pod for name, pod in self.pods().items() if pod.uid != before.get(name, NO_POD).uid}
        for name, stale in others.items():
            wait_for(partial(self._pod, name), partial(_is_anew, stale, began), SECONDS_MAX)

    def _pod(self, name: str) -> Pod | None:
        return self.pods().get(name)

    def pods(self) -> dict[str, Pod]:
        """All, by name: a tenant's have its namespace before it."""
        found = json.loads(self.kubectl("get", "pods", "--all-namespaces", "-ojson"))["items"]
        return {_name(each): Pod(each["metadata"]["uid"], _started(each)) for each in found}

    def state(self) -> str:
        """What whoever looks into a failure wants to see."""
        kinds = "clusters.barnabas.dev,topics.barnabas.dev,pods,pvc,services,endpointslices,statefulsets"
        looks = [["get", kinds, "--all-namespaces", "-owide"], ["-n", NAMESPACE, "logs", OPERATOR, "--all-pods"]]
        for tenant in self.tenants:
            looks += [["-n", tenant.name, "get", "clusters.barnabas.dev", "-oyaml"]]
            looks += [["-n", tenant.name, "logs", f"{tenant.castle.name}-broker-{number}"] for number in range(3)]
        views = [f"\n{tenant.name}: {tenant.view_of_clients()}" for tenant in self.tenants]
        return "\n".join([*(_end_of(self.kubectl, look) for look in looks), *views])


def pod_of(holder: str) -> str:
    """Whose life holds the lease."""
    return holder.rpartition("_")[0]


def _name(pod: dict[str, Any]) -> str:
    """The operator's pods go by their own."""
    meta = pod["metadata"]
    return str(meta["name"] if meta["namespace"] == NAMESPACE else f"{meta['namespace']}/{meta['name']}")


def _started(pod: dict[str, Any]) -> str:
    statuses = pod["status"].get("containerStatuses", [{}])
    return str(statuses[0].get("state", {}).get("running", {}).get("startedAt", ""))


def _is_anew(stale: Pod, began: str, now: Pod | None) -> bool:
    return now is None or now.uid != stale.uid or now.started >= began


def _end_of(kubectl: Kubectl, look: list[str]) -> str:
    done = kubectl.ask(*look)
    lines = (done.stdout + done.stderr).splitlines()
    return "\n".join([f"\n--- kubectl {' '.join(look)}", *lines[-LOG_LINES:]])
