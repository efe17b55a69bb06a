"""The installation of the first weeks: Barnabas by its chart, two Clusters in namespaces of their own."""

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
CRDS: Final = ROOT / "helm" / "barnabas" / "crd-files"
SECONDS_MAX: Final = 300.0
LOG_LINES: Final = 60


class Pod(NamedTuple):
    """The identity of a pod, and of one life of it."""

    uid: str
    started: str
    """The start of its first container, as Kubernetes writes times; empty if it does not run."""


NO_POD: Final = Pod("", "")


class Site:
    """The installation on a Kubernetes of its own."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        assert cluster.plane is not None, "the provider must be one that stops the API server and etcd"
        self._cluster = cluster
        self._backup = folder / "etcd-backup"
        self.plane: ControlPlane = cluster.plane
        self.tenants = (Tenant(cluster, 0), Tenant(cluster, 1))
        self._release = Release(cluster, NAMESPACE)

    def install(self) -> None:
        """Install everything; return when both Clusters are ready and clients write to them."""
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
        """Run helm, always with the same values: with these people may delete state documents, which an action does."""
        namespaces = ",".join(tenant.name for tenant in self.tenants)
        self._release(verb, f"watchNamespaces={{{namespaces}}}", "keepMetadata.enabled=false")

    def close(self) -> None:
        """End the reader of the installation."""
        for tenant in self.tenants:
            tenant.close()

    @property
    def kubectl(self) -> Kubectl:
        """Return a kubectl for objects of no tenant."""
        return self._cluster.kubectl

    def apply(self) -> None:
        """Apply all manifests of all tenants."""
        for tenant in self.tenants:
            tenant.apply()

    def await_whole(self) -> None:
        """Return when all is as declared, the clients go on, and the operator is ready."""
        self.await_operator()
        for tenant in self.tenants:
            tenant.await_ready()
            tenant.traffic.await_progress()

    def await_operator(self) -> None:
        """Return when Kubernetes counts the declared number of operator pods as ready."""
        self.operator("rollout", "status", OPERATOR, f"--timeout={SECONDS_MAX:.0f}s")

    def operator(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the chart."""
        return self.kubectl("-n", NAMESPACE, *arguments)

    def kill_operator(self) -> None:
        """Kill the operator that acts with `kill -9`; return when another one acts, or another life of it."""
        before = wait_for(self.lease_holder, seconds_max=SECONDS_MAX)
        self._cluster.crash(NAMESPACE, pod_of(before))
        wait_for(self.lease_holder, lambda now: now not in ("", before), SECONDS_MAX)

    def lease_holder(self) -> str:
        """Return the life of the operator that acts: its pod and a number; empty while its pod is gone."""
        holder = self.operator("get", "lease", "barnabas-operator", "-ojsonpath={.spec.holderIdentity}")
        return holder if pod_of(holder) in self.pods() else ""

    def back_up(self) -> None:
        """Save etcd as it is now, for `restore`."""
        back_up(self.plane, self._backup)

    def restore(self) -> None:
        """Restore etcd from the last `back_up`; return when nodes run exactly the pods that it knows."""
        before, began = self.pods(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        put_back(self.plane, self._backup)
        others = {name: pod for name, pod in self.pods().items() if pod.uid != before.get(name, NO_POD).uid}
        for name, stale in others.items():
            wait_for(partial(self._pod, name), partial(_is_anew, stale, began), SECONDS_MAX)

    def _pod(self, name: str) -> Pod | None:
        return self.pods().get(name)

    def pods(self) -> dict[str, Pod]:
        """Return all pods by name; those of a tenant have its namespace before the name."""
        found = json.loads(self.kubectl("get", "pods", "--all-namespaces", "-ojson"))["items"]
        return {_name(each): Pod(each["metadata"]["uid"], _started(each)) for each in found}

    def state(self) -> str:
        """Return the state of everything, for the message of a failure."""
        kinds = "clusters.barnabas.dev,topics.barnabas.dev,pods,pvc,services,endpointslices,statefulsets"
        looks = [["get", kinds, "--all-namespaces", "-owide"], ["-n", NAMESPACE, "logs", OPERATOR, "--all-pods"]]
        for tenant in self.tenants:
            looks += [["-n", tenant.name, "get", "clusters.barnabas.dev", "-oyaml"]]
            looks += [["-n", tenant.name, "logs", f"{tenant.castle.name}-broker-{number}"] for number in range(3)]
        views = [f"\n{tenant.name}: {tenant.view_of_clients()}" for tenant in self.tenants]
        return "\n".join([*(_end_of(self.kubectl, look) for look in looks), *views])


def pod_of(holder: str) -> str:
    """Return the pod whose life holds the lease."""
    return holder.rpartition("_")[0]


def _name(pod: dict[str, Any]) -> str:
    """Return the name of a pod; the operator's pods have no namespace before it."""
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
