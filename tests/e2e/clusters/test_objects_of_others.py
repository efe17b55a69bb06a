"""Objects that have the name of what a Cluster needs and are somebody else's stay as they are, on a real API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from e2e.world import SECONDS_MAX, World
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    """A namespace with an operator, and no Cluster yet."""
    name = f"others-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", name)
    found = World(defined_api_server, name, broker, tmp_path)
    operator = found.operator()
    try:
        yield found
    finally:
        operator.close()


def said(world: World, cluster: str) -> tuple[str, str]:
    """Reason and message of the condition Ready; empty texts until there is one."""
    found = world.plane.requests.get("Cluster", world.namespace, cluster) or {}
    ready = (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready")
    return next(((each["reason"], each.get("message", "")) for each in ready), ("", ""))


def owners(world: World, kind: str, name: str) -> list[str]:
    found: dict[str, Any] = world.plane.requests.get(kind, world.namespace, name) or {"metadata": {}}
    return [each["name"] for each in found["metadata"].get("ownerReferences", ())]


def conflict(kind: str, name: str, cluster: str) -> tuple[str, str]:
    allowed = f"allowed: delete or rename it, or give the Cluster {cluster} another name"
    return "ResourceConflict", f"{kind} {name} already exists and belongs to no Cluster; {allowed}"


def test_a_service_of_others_is_not_taken_over_and_stops_nothing_else(world: World) -> None:
    world.kubectl("create", "service", "clusterip", "one-bootstrap", "--tcp=80")
    world.apply_cluster("one", brokers={"replicas": 1})
    wait_for(lambda: said(world, "one"), lambda got: got == conflict("Service", "one-bootstrap", "one"), SECONDS_MAX)
    assert owners(world, "Service", "one-bootstrap") == []
    assert world.kubectl("get", "service", "one-bootstrap", "-ojsonpath={.spec.ports[*].port}") == "80"
    assert owners(world, "StatefulSet", "one-broker") == ["one"]
    world.kubectl("delete", "service", "one-bootstrap")
    wait_for(lambda: owners(world, "Service", "one-bootstrap"), lambda found: found == ["one"], SECONDS_MAX)


def test_a_stateful_set_of_others_is_neither_taken_over_nor_deleted_with_the_cluster(world: World) -> None:
    template = {
        "metadata": {"labels": {"app": "mine"}},
        "spec": {"containers": [{"name": "mine", "image": "mine:1"}]},
    }
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    mine = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "one-broker", "namespace": world.namespace},
        "spec": {
            "replicas": 1,
            "serviceName": "mine",
            "selector": {"matchLabels": {"app": "mine"}},
            "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claim}],
        },
    }
    world.plane.requests.create(mine)
    world.apply_cluster("one", brokers={"replicas": 1}, deletionPolicy="Delete")
    wait_for(lambda: said(world, "one"), lambda got: got == conflict("StatefulSet", "one-broker", "one"), SECONDS_MAX)
    world.kubectl("delete", "cluster", "one", "--timeout=60s")
    assert world.stateful_set("one-broker")
    assert owners(world, "StatefulSet", "one-broker") == []
