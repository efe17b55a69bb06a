"""Messages of a Cluster whose pods or disks Kubernetes' controllers cannot make. No node runs them."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.world import World
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nobody"}}


@pytest.fixture
def world(controllers: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    """A namespace with an operator and no Cluster yet, and a node without capacity."""
    name = f"obstacles-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    controllers.kubectl("create", "-f-", stdin=json.dumps(NODE))
    found = World(controllers, name, broker, tmp_path)
    with closing(found.operator()):
        yield found
        controllers.kubectl("delete", "node", "nobody")
        controllers.kubectl("delete", "namespace", name, "--wait=false")


def await_message(world: World, *parts: str) -> None:
    path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].message}"
    wait_for(
        lambda: world.kubectl("get", "cluster", "one", path),
        lambda said: all(part in said for part in parts),
        PATIENCE_S,
    )


def allow_pods(world: World, count: str) -> None:
    """Set a quota of pods."""
    world.kubectl("create", "quota", "few", f"--hard=pods={count}")
    wait_for(lambda: world.kubectl("get", "resourcequota", "few", "-o=jsonpath={.status.hard.pods}") == count)


def test_an_exceeded_quota_is_named(world: World) -> None:
    allow_pods(world, "0")
    world.apply_cluster("one")
    await_message(world, "waiting for Kubernetes to start broker 0: pods", "exceeded quota: few")


def test_a_missing_storage_class_is_named(world: World) -> None:
    world.apply_cluster("one", storage={"volumes": [{"id": 0, "size": "1Gi", "storageClass": "nope"}]})
    await_message(world, "volume-0-one-broker-0", 'storageclass.storage.k8s.io "nope" not found')
