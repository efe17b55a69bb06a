"""A Cluster's lag exporter is a pod that reads its brokers, as long as it is declared."""

from e2e.pods.castle import Castle
from harness.deadline import wait_for

NAME = "flights-lag-exporter"
SECONDS_MAX = 180.0


def metrics(castle: Castle) -> str:
    """Its page, through the API server; empty where it cannot be had."""
    (pod,) = castle.items("pod", "app.kubernetes.io/name=barnabas-lag-exporter")
    path = f"/api/v1/namespaces/{castle.namespace}/pods/{pod['metadata']['name']}:9308/proxy/metrics"
    return str(castle.ask("get", "--raw", path).stdout)


def test_a_lag_exporter_reads_the_brokers_until_it_is_declared_no_more(castle: Castle) -> None:
    brokers = castle.pods()
    castle.patch({"lagExporter": {"topicExcludeRegex": "^__"}})
    wait_for(lambda: NAME in castle.kubectl("get", "deployments", "-oname"), seconds_max=SECONDS_MAX)
    castle.kubectl("rollout", "status", f"deployment/{NAME}", f"--timeout={SECONDS_MAX:.0f}s")
    wait_for(lambda: metrics(castle), lambda page: "kafka_brokers 3.0" in page, SECONDS_MAX, pause_s=1.0)
    assert 'kafka_topic_partition_leader{partition="0",topic="' in metrics(castle)
    castle.patch({"lagExporter": None})
    wait_for(lambda: NAME not in castle.kubectl("get", "deployments,pods", "-oname"), seconds_max=SECONDS_MAX)
    assert castle.pods() == brokers, "no broker restarts for it"
