"""Runs Prometheus in a pod, by the manifest of the guide to monitoring."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from e2e.pods.castle import NAME, Castle
from e2e.pods.providers import Cluster
from local_kubernetes.kubectl import PATIENTLY
from monitoring.prometheus_image import MANIFEST, PROMETHEUS_IMAGE
from monitoring.prometheus_server import Prometheus
from monitoring.promtool import RULES

PORT: Final = 9090
OFTEN: Final = "2s"


@contextmanager
def prometheus_pod(cluster: Cluster, castle: Castle) -> Iterator[Prometheus]:
    """Run it in the Cluster's namespace, with shorter intervals than the guide has."""
    assert castle.name == NAME, "the Cluster that the manifest names"
    assert cluster.image(PROMETHEUS_IMAGE) == PROMETHEUS_IMAGE
    manifest = MANIFEST.read_text(encoding="utf-8").replace("15s", OFTEN)
    try:
        castle.kubectl("create", "configmap", "prometheus-rules", f"--from-file={RULES}")
        castle.kubectl("apply", "-f-", stdin=manifest)
        castle.kubectl("rollout", "status", "deployment/prometheus", PATIENTLY)
        with castle.cluster_kubectl.forwarded(castle.namespace, "service/prometheus", PORT) as port:
            yield Prometheus(port)
    finally:
        castle.ask("delete", "-f-", "--ignore-not-found", "--wait=false", stdin=manifest)
        castle.ask("delete", "configmap", "prometheus-rules", "--ignore-not-found")
