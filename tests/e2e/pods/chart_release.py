"""Installs Barnabas by its chart in a namespace, through helm.

release = Release(cluster, "castle")
release("install", "logLevel=DEBUG")
"""

import subprocess

from e2e.pods.providers import Cluster
from local_kubernetes.helm import CHART, helm
from local_kubernetes.kubectl import PATIENTLY


class Release:
    """A release of the chart with the images that this Kubernetes has."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def __call__(self, verb: str, *values: str) -> None:
        """Install, upgrade or uninstall the chart; return when that is over.

        These values go before those of the images.
        """
        images = {name: self._cluster.image(name) for name in ("barnabas-broker", "barnabas-operator")}
        repository, _, tag = images["barnabas-operator"].rpartition(":")
        ours = (f"image.repository={repository}", f"image.tag={tag}", f"brokerImage={images['barnabas-broker']}")
        flags = [f"--set={value}" for value in (*ours, *values)]
        self._helm(verb, "barnabas", *([str(CHART), *flags] if verb != "uninstall" else []), "--wait", PATIENTLY)

    def _helm(self, *arguments: str) -> None:
        command = [str(helm()), f"--kubeconfig={self._cluster.kubectl.kubeconfig}", f"--namespace={self._namespace}"]
        environment = self._cluster.kubectl.environment
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, env=environment)
        pods = self._cluster.kubectl("-n", self._namespace, "get", "pods", "-o=wide") if done.returncode != 0 else ""
        assert done.returncode == 0, f"helm {arguments[0]}: {done.stderr}\n{pods}"
