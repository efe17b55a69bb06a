"""Provides a Kubernetes for the end-to-end tests: `make e2e E2E=local|kind|current`.

- `local`: processes of this machine; needs root and what `install.sh` installs.
- `kind`: needs Docker, `kind` and `kubectl`.
- `current`: the cluster of your KUBECONFIG, which pulls the images from E2E_REGISTRY, where you have pushed them.
"""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from local_kubernetes.binaries import CannotStart, require
from local_kubernetes.cluster import LocalCluster
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.images import BASE_IMAGE, IMAGES, ROOT, TAG, reference
from local_kubernetes.kubectl import Kubectl
from local_kubernetes.node import ZONE_LABEL
from monitoring.prometheus_image import PROMETHEUS_IMAGE, prometheus_archive

SECONDS_MAX = 900
PUBLIC: Final = (BASE_IMAGE, PROMETHEUS_IMAGE)
"""The images that nodes pull by themselves, if they can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A running Kubernetes for tests."""

    kubectl: Kubectl
    node_address: str
    """The address at which this machine reaches node ports."""
    supply: Callable[[str], str]
    """A function that brings an image (one of IMAGES, or of PUBLIC) to the nodes."""
    kill_container: Callable[[str, str], None] | None
    """A function that kills the first process of a container, given its node and containerd's id; None if it cannot."""
    add_node: Callable[[str], str] | None = None
    """A function that starts one more node in a zone and returns its name; only `local` has it."""
    plane: ControlPlane | None = None
    """The control plane, for tests that break the API server; only `local` has it."""
    _references: dict[str, str] = field(default_factory=dict)

    def image(self, name: str) -> str:
        """Return the name that pods use for one of IMAGES or PUBLIC; the first call brings it to the nodes."""
        if name not in self._references:
            self._references[name] = self.supply(name)
        return self._references[name]

    def crash(self, namespace: str, pod: str) -> None:
        """Kill the first container of a pod with `kill -9`. Skips the test if that is not possible."""
        if self.kill_container is None:
            pytest.skip("the provider does not reach the nodes: nothing can be killed there")
        path = "{.spec.nodeName} {.status.containerStatuses[0].containerID}"
        node, identity = self.kubectl("-n", namespace, "get", "pod", pod, f"-o=jsonpath={path}").split()
        self.kill_container(node, identity.removeprefix("containerd://"))

    def zones(self) -> dict[str, list[str]]:
        """Return the nodes of each zone, by name, without those that take no pods."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node in json.loads(self.kubectl("get", "nodes", "-o=json"))["items"]:
            if not node["spec"].get("taints") and ZONE_LABEL in node["metadata"]["labels"]:
                found[node["metadata"]["labels"][ZONE_LABEL]].append(node["metadata"]["name"])
        return found

    def need_zones(self, count: int) -> None:
        """Make sure that there are so many zones, by new nodes if the provider can start them; else skip the test."""
        for number in range(len(self.zones()), count):
            if self.add_node is None:
                pytest.skip(f"nodes in {count} zones are needed ({ZONE_LABEL}), and the provider adds none")
            self.add_node(f"zone-{number + 1}")


Provider = Callable[[Path], AbstractContextManager[Cluster]]


@contextmanager
def local(folder: Path) -> Iterator[Cluster]:
    """Start a Kubernetes of processes, which ends with the thread that started it."""
    cluster = LocalCluster.begin(folder, outlive=False)

    def supply(image: str) -> str:
        if image != PROMETHEUS_IMAGE:
            return cluster.supply(image)
        cluster.import_archive(prometheus_archive())
        return image

    try:
        cluster.up()
        yield Cluster(
            kubectl=cluster.plane.kubectl,
            node_address=cluster.network.dns,
            supply=supply,
            kill_container=cluster.kill_container,
            add_node=cluster.add_node,
            plane=cluster.plane,
        )
    finally:
        cluster.down()


@contextmanager
def kind(folder: Path) -> Iterator[Cluster]:
    """Start a Kubernetes in Docker, and delete it at the end."""
    require("docker", "kind", "kubectl")
    name = f"barnabas-e2e-{os.getpid()}"
    kubeconfig = folder / "kubeconfig"
    program = Path(shutil.which("kubectl") or "kubectl")

    def supply(image: str) -> str:
        if image in PUBLIC:
            return image
        _run("docker", "build", f"--target={IMAGES[image]}", f"--tag={image}:{TAG}", str(ROOT))
        _run("kind", "load", "docker-image", f"{image}:{TAG}", f"--name={name}")
        return reference(image)

    def kill_container(node: str, container: str) -> None:
        _run("docker", "exec", node, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL", container)

    folder.mkdir(parents=True, exist_ok=True)
    try:
        _run("kind", "create", "cluster", f"--name={name}", f"--kubeconfig={kubeconfig}", "--wait=180s")
        kubectl = Kubectl(program, kubeconfig)
        address = _first_address(kubectl)
        yield Cluster(kubectl=kubectl, node_address=address, supply=supply, kill_container=kill_container)
    finally:
        _run("kind", "delete", "cluster", f"--name={name}")


@contextmanager
def current(folder: Path) -> Iterator[Cluster]:
    """Use the Kubernetes of your KUBECONFIG, and start or stop nothing."""
    require("kubectl")
    kubeconfig = Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    registry = os.environ.get("E2E_REGISTRY", "")
    kubectl = Kubectl(Path(shutil.which("kubectl") or "kubectl"), kubeconfig)
    if kubectl.ask("get", "nodes").returncode != 0:
        raise CannotStart(f"no cluster answers by KUBECONFIG={kubeconfig}")

    def supply(image: str) -> str:
        if image in PUBLIC:
            return image
        if not registry:
            raise CannotStart(f"E2E_REGISTRY must say where {image}:{TAG} was pushed, such as ghcr.io/you")
        return f"{registry}/{image}:{TAG}"

    address = _first_address(kubectl)
    yield Cluster(kubectl=kubectl, node_address=address, supply=supply, kill_container=None)


PROVIDERS: Final[Mapping[str, Provider]] = {"local": local, "kind": kind, "current": current}


def provider(name: str) -> Provider:
    """Return the provider of that name. Raises CannotStart with the names that exist."""
    if name not in PROVIDERS:
        raise CannotStart(f"E2E={name}: it is one of {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def _first_address(kubectl: Kubectl) -> str:
    addresses = '{.items[0].status.addresses[?(@.type=="InternalIP")].address}'
    return kubectl("get", "nodes", f"-o=jsonpath={addresses}").split()[0]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    if done.returncode != 0:
        raise CannotStart(f"{' '.join(command[:3])} failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
