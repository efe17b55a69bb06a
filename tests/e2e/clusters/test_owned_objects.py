"""What a Cluster owns and others delete or change is put right at once, on a real API server."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from barnabas_operator.planning.object_names import CLUSTER_LABEL, GIVEN
from e2e.world import SECONDS_MAX, World
from harness.deadline import wait_for
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
"""On a machine with little load."""
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
    """With a Cluster, and an operator that never looks by itself."""
    namespace = f"owned-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    found = World(defined_api_server, namespace, broker, tmp_path)
    found.apply_cluster("one", lagExporter={}, maintenance=[NIGHTLY])
    operator = found.operator(DRIFT_SECONDS=NEVER_S)
    try:
        wait_for(lambda: all(owned(found, kind) for kind in OWNED), seconds_max=SECONDS_MAX)
        yield found
    finally:
        operator.close()
        defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")


def owned(world: World, kind: str) -> dict[str, str]:
    """Uids by name."""
    found = world.plane.requests.listing(kind, world.namespace, {CLUSTER_LABEL: "one"})
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def delete_and_await(world: World, kind: str) -> None:
    name, before = next(iter(owned(world, kind).items()))
    began_s = time.monotonic()
    world.plane.requests.delete(kind, world.namespace, name)
    wait_for(lambda: owned(world, kind).get(name), lambda uid: uid not in (None, before), SECONDS_MAX)
    took(f"{kind} {name} is back", time.monotonic() - began_s, BACK_S_MAX)


def test_each_object_that_somebody_deletes_is_made_again_within_seconds(world: World) -> None:
    for kind in OWNED:
        delete_and_await(world, kind)


def test_what_somebody_changes_of_an_object_goes_back_within_seconds(world: World) -> None:
    def names() -> Any:
        found = world.plane.requests.get("Service", world.namespace, "one-bootstrap")
        return found and found["spec"]["selector"]

    before, began_s = names(), time.monotonic()
    other = {"spec": {"selector": {"app.kubernetes.io/name": "somebody-else"}}}
    world.kubectl("patch", "service", "one-bootstrap", "--type=merge", f"-p={json.dumps(other)}")
    wait_for(names, lambda found: found == before, SECONDS_MAX)
    took("the Service is as declared", time.monotonic() - began_s, BACK_S_MAX)


def test_a_lag_exporter_goes_when_it_is_declared_no_more_and_somebody_elses_stays(world: World) -> None:
    theirs = {"app": "theirs"}
    pods = {"metadata": {"labels": theirs}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    meta = {"name": "two-lag-exporter", "namespace": world.namespace}
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta}
    world.plane.requests.apply({**other, "spec": {"selector": {"matchLabels": theirs}, "template": pods}})
    world.apply_cluster("one")
    wait_for(lambda: owned(world, "Deployment"), lambda found: found == {}, SECONDS_MAX)
    world.apply_cluster("two", lagExporter={})
    wait_for(lambda: message(world, "two"), lambda text: "Deployment two-lag-exporter" in text, SECONDS_MAX)
    world.apply_cluster("two")
    wait_for(lambda: message(world, "two"), lambda text: "Deployment two-lag-exporter" not in text, SECONDS_MAX)
    assert world.plane.requests.get("Deployment", world.namespace, "two-lag-exporter") is not None


def test_an_object_that_cannot_be_made_again_is_named_until_it_can(world: World) -> None:
    with refused(world, "policy", "poddisruptionbudgets"):
        delete_and_await_its_name(world, "PodDisruptionBudget", "one-broker")
    wait_for(lambda: owned(world, "PodDisruptionBudget"), seconds_max=SECONDS_MAX)
    wait_for(lambda: message(world), lambda text: "PodDisruptionBudget" not in text, SECONDS_MAX)


def test_a_service_at_a_node_port_is_back_within_seconds_with_its_port_and_named_while_it_cannot_be(
    world: World,
) -> None:
    outside = {"name": "outside", "port": 9094, "type": "nodeport"}
    world.apply_cluster("one", listeners=[{"name": "plain", "port": 9092}, outside])
    name = "one-broker-0-outside"
    port = wait_for(lambda: advertised(world).get(name, ""), seconds_max=SECONDS_MAX)
    began_s = time.monotonic()
    world.plane.requests.delete("Service", world.namespace, name)
    wait_for(lambda: node_port(world, name), bool, SECONDS_MAX)
    took("the Service is back", time.monotonic() - began_s, BACK_S_MAX)
    assert node_port(world, name) == port
    with refused(world, "", "services"):
        delete_and_await_its_name(world, "Service", name)
    wait_for(lambda: node_port(world, name), seconds_max=SECONDS_MAX)
    assert node_port(world, name) == port
    wait_for(lambda: message(world), lambda text: name not in text, SECONDS_MAX)


def advertised(world: World) -> dict[str, str]:
    """Node ports by Service, as the brokers' StatefulSet has them."""
    found = world.plane.requests.get("StatefulSet", world.namespace, "one-broker") or {"metadata": {}}
    given: dict[str, str] = json.loads(found["metadata"].get("annotations", {}).get(GIVEN, "{}"))
    return given


def node_port(world: World, service: str) -> str:
    """Nothing where it is gone."""
    found = world.plane.requests.get("Service", world.namespace, service)
    return str(found["spec"]["ports"][0]["nodePort"]) if found is not None else ""


def delete_and_await_its_name(world: World, kind: str, name: str) -> None:
    """Returns when the Cluster says that it cannot be created."""
    world.plane.requests.delete(kind, world.namespace, name)
    said = wait_for(lambda: message(world), lambda text: kind in text, SECONDS_MAX)
    assert said.startswith(f"{kind} {name} is missing and cannot be created: ")
    assert "not now" in said


def message(world: World, name: str = "one") -> str:
    """Of the Cluster's condition Ready."""
    found = world.plane.requests.get("Cluster", world.namespace, name) or {}
    ready = (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready")
    return str(next((each.get("message", "") for each in ready), ""))


@contextmanager
def refused(world: World, group: str, plural: str) -> Iterator[None]:
    """While inside, the API server takes no new one in this namespace."""
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
        wait_for(lambda: "not now" in world.plane.kubectl.ask(*made, stdin=tried).stderr, seconds_max=SECONDS_MAX)
        yield
    finally:
        world.plane.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
