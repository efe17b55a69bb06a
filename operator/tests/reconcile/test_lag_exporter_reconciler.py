"""A lag exporter is created and deleted as declared, and its problems do not affect brokers and topics."""

import pytest

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from harness.worker_world import World, of_broker, refuses, resource, topic

EXPORTER = "one-lag-exporter"


async def test_a_lag_exporter_exists_while_it_is_declared(here: World) -> None:
    here.api.put(resource("Cluster", "one", lagExporter={}))
    assert await here.round()
    assert here.api.found("Deployment", EXPORTER) is not None
    here.api.put({**resource("Cluster", "one"), "metadata": {"name": "one", "namespace": "air", "generation": 2}})
    assert await here.round()
    assert here.api.found("Deployment", EXPORTER) is None
    assert here.api.found("StatefulSet", "one-broker") is not None


@pytest.mark.parametrize(
    "error",
    [
        KubeUnreachable('failed calling webhook "deployments.example.org"'),
        KubeRefused(403, "Forbidden", "exceeded quota: deployments"),
        KubeRefused(422, "Invalid", "spec.template.spec.containers[0].resources.requests: too many"),
    ],
    ids=["no answer", "no right", "no such object"],
)
async def test_brokers_and_topics_are_reconciled_if_the_lag_exporter_fails(error: Exception, here: World) -> None:
    here.api.put(resource("Cluster", "one", lagExporter={}))
    here.api.put(topic("flights"))
    here.api.refuse = refuses("/deployments/", error)
    await here.round()
    assert here.api.found("StatefulSet", "one-broker") is not None
    assert here.said("Topic", "flights")[0] == "True"


async def test_the_cluster_reports_a_problem_of_its_lag_exporter(here: World) -> None:
    here.api.put(resource("Cluster", "one", lagExporter={}))
    here.api.put(of_broker(0))
    wrong = "spec.template.spec.containers[0].resources.requests: too many"
    here.api.refuse = refuses("/deployments/", KubeRefused(422, "Invalid", wrong))
    await here.round()
    said = f"Deployment {EXPORTER}: spec.lagExporter.resources.requests: too many"
    assert here.said("Cluster", "one") == ("False", "InvalidSpec", said)
