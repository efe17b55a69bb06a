"""`kubectl delete -f crds/` while brokers are written to, and all is applied again: no topic goes, nor its metadata.

The brokers are processes whose metadata is in StateDocuments of the Cluster that the operator looks after; the
controllers of Kubernetes run, and no pods.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas_core.config.properties import parse_properties
from e2e.brokers.brokers_on_the_api import three_with_flights
from e2e.state_documents import define_state_documents
from e2e.world import SECONDS_MAX, World, release_all_but
from harness.cluster import BarnabasCluster
from harness.deadline import wait_for
from harness.writer import Writer
from local_kubernetes.apiserver import CRDS, define
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow
NAMESPACE = "default"
TOPICS = {"flights": 3, "gates": 2}


@pytest.fixture
def brokers(tmp_path: Path, controllers: ControlPlane) -> Iterator[BarnabasCluster]:
    with three_with_flights(tmp_path, controllers) as running:
        yield running


@pytest.fixture
def world(brokers: BarnabasCluster, controllers: ControlPlane, tmp_path: Path) -> Iterator[World]:
    """Where the brokers' metadata is, with an operator."""
    found = World(controllers, NAMESPACE, brokers.brokers[0], tmp_path)
    operator = found.operator()
    try:
        yield found
        found.kubectl("delete", "topics,clusters.barnabas.dev", "--all", "--timeout=60s")
    finally:
        operator.close()


def cluster_of(brokers: BarnabasCluster) -> str:
    """The Cluster whose metadata theirs is."""
    settings = parse_properties((brokers.folder_of(0) / "server.properties").read_text(encoding="utf-8"))
    return settings["metadata.store"].value.rpartition("/")[2]


def declare(world: World, cluster: str) -> None:
    """Returns when all Topics are ready."""
    world.apply_cluster(cluster, brokers={"replicas": 3})
    for name, partitions in TOPICS.items():
        world.apply(name, cluster=cluster, partitions=partitions, replicas=3, config={"min.insync.replicas": "2"})
    world.await_ready(*TOPICS)


def ids(world: World) -> dict[str, str]:
    """Of the topics, as their resources tell them."""
    found = {name: world.topic(name) or {} for name in TOPICS}
    return {name: each["status"]["topicId"] for name, each in found.items()}


def documents(world: World, cluster: str) -> set[str]:
    """The keys of what brokers keep."""
    chosen = f"--selector=barnabas.dev/cluster={cluster}"
    found = json.loads(world.kubectl("get", "statedocuments", chosen, "-ojson"))["items"]
    return {each["spec"]["key"] for each in found} - {"mark"}


def test_definitions_that_are_all_deleted_at_once_and_applied_again_take_no_topic_along(
    world: World, brokers: BarnabasCluster
) -> None:
    cluster = cluster_of(brokers)
    declare(world, cluster)
    ids_before, keys = ids(world), documents(world, cluster)
    assert {f"topics/{name}" for name in TOPICS} <= keys
    release_all_but(world)
    with Writer(brokers.client(), "flights", 0) as writer:
        writer.wait_for_more()
        world.plane.kubectl("delete", f"-f{CRDS}", "--timeout=60s")
        try:
            writer.wait_for_more()
            assert {name: world.partitions().get(name) for name in TOPICS} == TOPICS
        finally:
            define(world.plane)
            define_state_documents(world.plane)
        wait_for(lambda: keys <= documents(world, cluster), seconds_max=SECONDS_MAX)
        declare(world, cluster)
        writer.wait_for_more()
    assert ids(world) == ids_before
    assert {name: world.partitions()[name] for name in TOPICS} == TOPICS
    brokers.wait_until_full(*TOPICS)
    assert set(brokers.client().read("flights", 0)) >= set(writer.acknowledged)
