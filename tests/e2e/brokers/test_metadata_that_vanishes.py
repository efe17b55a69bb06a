"""Metadata that is deleted from a real Kubernetes API under load: brokers continue, and write it again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_core.config.definitions import parse_properties
from e2e.brokers.brokers_on_the_api import three_with_flights
from e2e.state_documents import DEFINITION, define_state_documents
from harness.cluster import BarnabasCluster
from harness.deadline import wait_for
from harness.writer import Writer
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow
LABEL = "barnabas.dev/cluster"


@pytest.fixture
def cluster(tmp_path: Path, api_server: ControlPlane) -> Iterator[BarnabasCluster]:
    with three_with_flights(tmp_path, api_server) as running:
        yield running


def name_of(cluster: BarnabasCluster) -> str:
    settings = parse_properties((cluster.folder_of(0) / "server.properties").read_text(encoding="utf-8"))
    return settings["metadata.store"].value.rpartition("/")[2]


def documents(api_server: ControlPlane, cluster: BarnabasCluster) -> dict[str, Any]:
    """Return the state documents of the cluster by key."""
    chosen = f"--selector={LABEL}={name_of(cluster)}"
    found = json.loads(api_server.kubectl("-n", "default", "get", "statedocuments", chosen, "-ojson"))
    return {each["spec"]["key"]: each for each in found["items"]}


def until_all_are_back(api_server: ControlPlane, cluster: BarnabasCluster, keys: set[str]) -> None:
    wait_for(lambda: keys <= documents(api_server, cluster).keys())


def keys_of(api_server: ControlPlane, cluster: BarnabasCluster) -> set[str]:
    return documents(api_server, cluster).keys() - {"mark"}


def test_deleting_and_applying_the_crd_of_metadata_again_loses_nothing(
    cluster: BarnabasCluster, api_server: ControlPlane
) -> None:
    keys = keys_of(api_server, cluster)
    with Writer(cluster.client(), "flights", 0) as writer:
        writer.wait_for_more()
        api_server.kubectl("delete", "-f", str(DEFINITION))
        writer.wait_for_more()
        define_state_documents(api_server)
        until_all_are_back(api_server, cluster, keys)
        writer.wait_for_more()
        leader = cluster.leader("flights", 0)
        cluster.kill(leader)
        writer.wait_for_more()
        cluster.start(leader)
        cluster.wait_until_full("flights")
        cluster.create_topic("after", 1, 3)
    assert set(cluster.client().read("flights", 0)) >= set(writer.acknowledged)
