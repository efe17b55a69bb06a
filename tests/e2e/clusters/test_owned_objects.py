"""The operator restores a Cluster's objects that others delete, on a real API server."""

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas_operator.planning.object_names import CLUSTER_LABEL
from e2e.world import World
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.soak import took
from local_kubernetes.control_plane import ControlPlane

OWNED = (
    "ConfigMap",
    "CronJob",
    "Deployment",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
BACK_S_MAX = 2.0
"""This is expected of a machine with little load."""
NIGHTLY = {
    "name": "nightly",
    "schedule": "0 3 1 1 *",
    "job": "archive",
    "options": {"topic": "flights", "archive": "/archive/flights"},
    "volumes": [{"name": "archive", "mountPath": "/archive", "claimName": "archives"}],
}
NEVER_S = "3600"
TRIED = {
    "poddisruptionbudgets": {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "tried"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
    },
    "services": {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "tried"},
        "spec": {"ports": [{"port": 80}]},
    },
}


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    """A namespace with a Cluster, and an operator without periodic reconciliation."""
    namespace = f"owned-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    found = World(defined_api_server, namespace, broker, tmp_path)
    found.apply_cluster("one", lagExporter={}, maintenance=[NIGHTLY])
    with closing(found.operator(DRIFT_SECONDS=NEVER_S)):
        wait_for(lambda: all(owned(found, kind) for kind in OWNED))
        yield found
        defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def owned(world: World, kind: str) -> dict[str, str]:
    """Return the uids of the Cluster's objects of a kind, by name."""
    found = world.plane.requests.listing(kind, world.namespace, {CLUSTER_LABEL: "one"})
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def delete_and_await(world: World, kind: str) -> None:
    name, before = next(iter(owned(world, kind).items()))
    began_s = time.monotonic()
    world.plane.requests.delete(kind, world.namespace, name)
    wait_for(lambda: owned(world, kind).get(name), lambda uid: uid not in (None, before), PATIENCE_S)
    took(f"{kind} {name} is back", time.monotonic() - began_s, BACK_S_MAX)


def test_each_deleted_object_is_created_again_within_seconds(world: World) -> None:
    for kind in OWNED:
        delete_and_await(world, kind)


def test_an_object_that_cannot_be_created_is_reported_until_it_can(world: World) -> None:
    with refused(world, "policy", "poddisruptionbudgets"):
        delete_and_await_its_name(world, "PodDisruptionBudget", "one-broker")
    wait_for(lambda: owned(world, "PodDisruptionBudget"))
    wait_for(lambda: message(world), lambda text: "PodDisruptionBudget" not in text, PATIENCE_S)


def delete_and_await_its_name(world: World, kind: str, name: str) -> None:
    """Delete an object; return when the Cluster reports that it cannot be created."""
    world.plane.requests.delete(kind, world.namespace, name)
    said = wait_for(lambda: message(world), lambda text: kind in text, PATIENCE_S)
    assert said.startswith(f"{kind} {name} is missing and cannot be created: ")
    assert "not now" in said


def message(world: World, name: str = "one") -> str:
    """Return the message of the Cluster's condition Ready."""
    found = world.plane.requests.get("Cluster", world.namespace, name) or {}
    ready = (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready")
    return str(next((each.get("message", "") for each in ready), ""))


@contextmanager
def refused(world: World, group: str, plural: str) -> Iterator[None]:
    """Make the API server refuse new objects of this kind in this namespace, inside of the context."""
    name = f"no-{plural}-{world.namespace}"
    rule = {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [plural]}
    api, mine = "admissionregistration.k8s.io/v1", {"kubernetes.io/metadata.name": world.namespace}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": {"matchLabels": mine}},
        "validations": [{"expression": "false", "message": "not now", "reason": "Forbidden"}],
    }
    bound = {"policyName": name, "validationActions": ["Deny"]}
    policy = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    binding = {"apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": bound}
    for each in (policy, binding):
        world.plane.kubectl("apply", "-f-", stdin=json.dumps(each))
    try:
        made = ("-n", world.namespace, "create", "--dry-run=server", "-f-")
        tried = json.dumps(TRIED[plural])
        wait_for(lambda: "not now" in world.plane.kubectl.ask(*made, stdin=tried).stderr)
        yield
    finally:
        world.plane.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
