"""The operator process on a real API server with a real broker: creation, change and deletion of Topics.

No pods run here, so the broker is a process, too, and the operator gets its address.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.world import World, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane


@pytest.fixture
def world(
    defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    namespace = f"topics-{os.getpid()}-{abs(hash(request.node.name)) % 10**8}"
    with world_of_one(defined_api_server, namespace, broker, tmp_path) as found:
        yield found


@pytest.fixture
def operator(world: World) -> Iterator[ServerProcess]:
    with closing(world.operator()) as process:
        yield process


def test_a_topic_is_created_and_its_partitions_are_only_increased(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=6, config={"retention.ms": 1000})
    world.await_ready("flights")
    assert world.partitions() == {"flights": 6}
    world.kubectl("scale", "topic/flights", "--replicas=12")
    wait_for(world.partitions, lambda found: found == {"flights": 12}, PATIENCE_S)
    world.await_ready("flights")
    wait_for(
        lambda: world.events("Topic", "flights"),
        lambda told: told == {("Normal", "PartitionsRaised", "the number of partitions rose from 6 to 12")},
        PATIENCE_S,
    )
    refused = world.plane.kubectl.ask("-n", world.namespace, "scale", "topic/flights", "--replicas=6")
    assert "spec.partitions is 6; allowed: 12 or more" in refused.stderr
    columns = world.kubectl("get", "topic", "flights", "--no-headers").split()
    assert columns[:5] == ["flights", "True", "one", "12", "1"]


def test_deleting_a_resource_deletes_its_topic_only_with_the_deletion_policy_delete(
    world: World, operator: ServerProcess
) -> None:
    world.apply("kept", partitions=1)
    world.apply("gone", partitions=1, deletionPolicy="Delete")
    world.apply("guarded", partitions=1, deletionPolicy="Protect")
    world.await_ready("kept", "gone", "guarded")
    world.kubectl("delete", "topic", "kept", "gone")
    world.kubectl("delete", "topic", "guarded", "--wait=false")
    assert world.partitions().keys() == {"kept", "guarded"}
    _, why = wait_for(lambda: world.ready("guarded"), lambda said: said[0] == "False", PATIENCE_S)
    assert "spec.deletionPolicy is Protect; first set Delete or Retain" in why
    world.kubectl("patch", "topic", "guarded", "--type=merge", '-p={"spec":{"deletionPolicy":"Retain"}}')
    wait_for(lambda: world.topic("guarded"), lambda found: found is None, PATIENCE_S)
    assert world.partitions().keys() == {"kept", "guarded"}


def test_a_misspelt_cluster_can_be_corrected_but_not_changed_later(world: World, operator: ServerProcess) -> None:
    world.apply("flights", cluster="oen", partitions=1)
    _, why = wait_for(lambda: world.ready("flights"), lambda said: said[0] == "False", PATIENCE_S)
    assert why == "spec.cluster is oen; allowed: one"
    assert world.kubectl("get", "topic", "flights", "--no-headers").split()[:3] == ["flights", "False", "oen"]
    world.apply("flights", cluster="one", partitions=1)
    world.await_ready("flights")
    away = '-p={"spec":{"cluster":"two"}}'
    refused = world.plane.kubectl.ask("-n", world.namespace, "patch", "topic", "flights", "--type=merge", away)
    assert "spec.cluster is two; allowed: one (a Topic cannot move to another Cluster)" in refused.stderr
    dropped = '-p={"spec":{"cluster":null}}'
    refused = world.plane.kubectl.ask("-n", world.namespace, "patch", "topic", "flights", "--type=merge", dropped)
    assert "spec.cluster is missing; allowed: one (a Topic cannot move to another Cluster)" in refused.stderr


def test_an_invalid_pod_template_is_reported_and_topics_are_still_reconciled(
    world: World, operator: ServerProcess
) -> None:
    before = wait_for(lambda: world.stateful_set("one-broker"))
    pod = {"spec": {"tolerations": [{"key": "a", "operator": "Perhaps"}]}}
    change = {"spec": {"template": {"pod": pod}, "storage": {"volumes": [{"id": 0}, {"id": 1}]}}}
    world.kubectl("patch", "cluster", "one", "--type=merge", f"-p={json.dumps(change)}")
    world.apply("flights", partitions=1)
    world.await_ready("flights")
    told = wait_for(
        lambda: world.events("Cluster", "one"),
        lambda events: any(reason == "InvalidSpec" for _, reason, _ in events),
        PATIENCE_S,
    )
    (message,) = (message for _, reason, message in told if reason == "InvalidSpec")
    assert message.startswith("StatefulSet one-broker: spec.template.pod.spec.tolerations[0].operator: ")
    assert 'Unsupported value: "Perhaps"' in message
    assert world.stateful_set("one-broker") == before, "the StatefulSet must be kept, since it restarts the pods"
