"""The operator as a process on a real API server, with a real broker: what becomes of Topics.

No pods run here, so the broker is a process too, and the operator is told its address.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    ResourceType,
)

from e2e.world import SECONDS_MAX, WAIT_S, World, rounds_of, world_of_one
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from harness.soak import seed, size
from local_kubernetes.control_plane import ControlPlane

RESTARTS = size(1, 10)


@pytest.fixture
def world(
    defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    namespace = f"topics-{os.getpid()}-{abs(hash(request.node.name)) % 10**8}"
    with world_of_one(defined_api_server, namespace, broker, tmp_path) as found:
        yield found


@pytest.fixture
def operator(world: World) -> Iterator[ServerProcess]:
    process = world.operator()
    try:
        yield process
    finally:
        process.close()


def test_a_topic_is_made_grown_and_never_shrunk(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=6, config={"retention.ms": 1000})
    world.await_ready("flights")
    assert world.partitions() == {"flights": 6}
    world.kubectl("scale", "topic/flights", "--replicas=12")
    wait_for(world.partitions, lambda found: found == {"flights": 12}, SECONDS_MAX)
    world.await_ready("flights")
    wait_for(
        lambda: world.events("Topic", "flights"),
        lambda told: told == {("Normal", "PartitionsRaised", "from 6 to 12 partitions")},
        SECONDS_MAX,
    )
    refused = world.plane.kubectl.ask("-n", world.namespace, "scale", "topic/flights", "--replicas=6")
    assert "spec.partitions is 6; allowed: 12 or more" in refused.stderr
    columns = world.kubectl("get", "topic", "flights", "--no-headers").split()
    assert columns[:5] == ["flights", "True", "one", "12", "1"]


def test_what_is_as_declared_is_not_written_again(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=2, deletionPolicy="Delete")
    world.await_ready("flights")
    goal, patches = rounds_of(operator) + 3, world.patches()
    wait_for(lambda: rounds_of(operator), lambda rounds: rounds >= goal, SECONDS_MAX)
    assert world.patches() == patches


def test_a_stateful_set_that_somebody_deletes_is_made_again_at_once(world: World) -> None:
    patient = world.operator(DRIFT_SECONDS="3600")
    try:
        before = wait_for(lambda: world.stateful_set("one-broker"), seconds_max=SECONDS_MAX)
        world.kubectl("delete", "statefulset", "one-broker")
        wait_for(lambda: world.stateful_set("one-broker"), lambda now: now not in ("", before), SECONDS_MAX)
    finally:
        patient.close()


def set_by_others(world: World, **configs: str) -> None:
    """On the topic `flights`; `_` stands for a dot."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, "flights", incremental_configs=entries)
    (done,) = world.admin.incremental_alter_configs([resource]).values()
    done.result(WAIT_S)


def overrides(world: World) -> dict[str, str]:
    (found,) = world.admin.describe_configs([ConfigResource(ResourceType.TOPIC, "flights")]).values()
    return {
        name: entry.value
        for name, entry in found.result(WAIT_S).items()
        if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    }


def test_a_topic_that_grew_by_other_hands_is_told_and_left_and_what_else_they_changed_is_undone(
    world: World, operator: ServerProcess
) -> None:
    world.apply("flights", partitions=2, config={"retention.ms": 1000})
    world.await_ready("flights")
    grown = world.admin.create_partitions([NewPartitions("flights", 5)])["flights"]
    grown.result(WAIT_S)
    _, why = wait_for(lambda: world.ready("flights"), lambda said: said[0] == "False", SECONDS_MAX)
    assert why == "Decreasing partitions not supported: spec.partitions is 2, the topic has 5; allowed: 5 or more"
    said = {
        ("Normal", "PartitionsRaised", "from 2 to 5 partitions, by somebody else"),
        ("Warning", "NotSupported", why),
    }
    wait_for(lambda: world.events("Topic", "flights"), lambda told: told == said, SECONDS_MAX)
    assert world.partitions() == {"flights": 5}
    set_by_others(world, retention_ms="5")
    wait_for(lambda: overrides(world), lambda found: found == {"retention.ms": "1000"}, SECONDS_MAX)
    assert f"not undone: {why}" in world.kubectl("get", "topic", "flights", "-o=wide")


def test_what_others_set_goes_back_to_what_is_declared(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=1, config={"retention.ms": 1000})
    world.await_ready("flights")
    set_by_others(world, retention_ms="5", segment_ms="70000")
    wait_for(lambda: overrides(world), lambda found: found == {"retention.ms": "1000"}, SECONDS_MAX)
    wait_for(lambda: "DriftUndone" in {reason for _, reason, _ in world.events("Topic", "flights")})


def test_a_resource_that_goes_takes_its_topic_along_only_where_it_says_so(
    world: World, operator: ServerProcess
) -> None:
    world.apply("kept", partitions=1)
    world.apply("gone", partitions=1, deletionPolicy="Delete")
    world.apply("guarded", partitions=1, deletionPolicy="Protect")
    world.await_ready("kept", "gone", "guarded")
    world.kubectl("delete", "topic", "kept", "gone")
    world.kubectl("delete", "topic", "guarded", "--wait=false")
    assert world.partitions().keys() == {"kept", "guarded"}
    _, why = wait_for(lambda: world.ready("guarded"), lambda said: said[0] == "False", SECONDS_MAX)
    assert "spec.deletionPolicy is Protect; set Delete or Retain first" in why
    world.kubectl("patch", "topic", "guarded", "--type=merge", '-p={"spec":{"deletionPolicy":"Retain"}}')
    wait_for(lambda: world.topic("guarded"), lambda found: found is None, SECONDS_MAX)
    assert world.partitions().keys() == {"kept", "guarded"}


def test_a_finalizer_does_not_outlive_the_cluster(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=1, deletionPolicy="Delete")
    world.await_ready("flights")
    world.kubectl("delete", "cluster", "one")
    world.kubectl("delete", "topic", "flights", "--timeout=60s")
    assert world.partitions().keys() == {"flights"}  # There was no cluster any more to delete it from.


def test_a_topic_without_a_cluster_says_so_until_there_is_one(world: World, operator: ServerProcess) -> None:
    world.apply("flights", cluster="two", partitions=1)
    _, why = wait_for(lambda: world.ready("flights"), lambda said: said[0] == "False", SECONDS_MAX)
    assert why == "spec.cluster is two; allowed: one"
    world.apply_cluster("two")
    world.await_ready("flights")


def test_a_mistyped_cluster_can_be_corrected(world: World, operator: ServerProcess) -> None:
    world.apply("flights", cluster="oen", partitions=1)
    _, why = wait_for(lambda: world.ready("flights"), lambda said: said[0] == "False", SECONDS_MAX)
    assert why == "spec.cluster is oen; allowed: one"
    assert world.kubectl("get", "topic", "flights", "--no-headers").split()[:3] == ["flights", "False", "oen"]
    world.apply("flights", cluster="one", partitions=1)
    world.await_ready("flights")
    away = '-p={"spec":{"cluster":"two"}}'
    refused = world.plane.kubectl.ask("-n", world.namespace, "patch", "topic", "flights", "--type=merge", away)
    assert "spec.cluster is two; allowed: one, which has the topic" in refused.stderr
    dropped = '-p={"spec":{"cluster":null}}'
    refused = world.plane.kubectl.ask("-n", world.namespace, "patch", "topic", "flights", "--type=merge", dropped)
    assert "spec.cluster is missing; allowed: one, which has the topic" in refused.stderr


def test_a_second_cluster_leaves_topics_where_they_are_and_only_that_may_be_said(
    world: World, operator: ServerProcess
) -> None:
    world.apply("flights", partitions=1, deletionPolicy="Delete")
    world.await_ready("flights")
    world.apply_cluster("two")
    world.kubectl("scale", "topic/flights", "--replicas=3")
    wait_for(world.partitions, lambda found: found == {"flights": 3}, SECONDS_MAX)
    in_two, in_one = (f'-p={{"spec":{{"cluster":"{name}"}}}}' for name in ("two", "one"))
    refused = world.plane.kubectl.ask("-n", world.namespace, "patch", "topic", "flights", "--type=merge", in_two)
    assert "spec.cluster is two; allowed: one, which has the topic, or leave it out" in refused.stderr
    world.kubectl("patch", "topic", "flights", "--type=merge", in_one)
    world.await_ready("flights")
    world.kubectl("delete", "topic", "flights", "--timeout=60s")
    assert world.partitions() == {}


def test_of_two_topics_of_one_name_the_older_has_it(world: World, operator: ServerProcess) -> None:
    world.apply("flights", partitions=1)
    world.await_ready("flights")
    world.apply("planes", topicName="flights", partitions=4)
    _, why = wait_for(lambda: world.ready("planes"), lambda said: said[0] == "False", SECONDS_MAX)
    assert why == "Topic flights is managed by the older resource flights; allowed: one Topic each"
    assert world.partitions() == {"flights": 1}


def test_a_cluster_tells_what_it_waits_for(world: World, operator: ServerProcess) -> None:
    said = ("Warning", "BrokersNotReady", "waiting for Kubernetes to start broker 0")
    wait_for(lambda: world.events("Cluster", "one"), lambda told: told == {said}, SECONDS_MAX)
    assert "waiting for Kubernetes to start broker 0" in world.kubectl("describe", "cluster", "one")


def test_a_cluster_tells_why_kubernetes_makes_no_pod(world: World, operator: ServerProcess) -> None:
    uid = wait_for(lambda: world.stateful_set("one-broker"), seconds_max=SECONDS_MAX)
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "one-broker", "namespace": world.namespace}
    said = "create Pod one-broker-0 in StatefulSet one-broker failed error: exceeded quota: few"
    told = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "one-broker.1"},
        "type": "Warning",
        "reason": "FailedCreate",
        "message": said,
        "involvedObject": {**about, "uid": uid},
        "lastTimestamp": "2026-11-01T10:00:00Z",
    }
    world.kubectl("create", "-f-", stdin=json.dumps(told))
    message = "waiting for Kubernetes to start broker 0: exceeded quota: few"
    wait_for(
        lambda: message in world.kubectl("get", "cluster", "one", "--no-headers"), seconds_max=SECONDS_MAX, pause_s=0.3
    )


def test_what_the_api_server_refuses_of_brokers_is_told_and_topics_go_on(world: World, operator: ServerProcess) -> None:
    before = wait_for(lambda: world.stateful_set("one-broker"), seconds_max=SECONDS_MAX)
    pod = {"spec": {"tolerations": [{"key": "a", "operator": "Perhaps"}]}}
    change = {"spec": {"template": {"pod": pod}, "storage": {"volumes": [{"id": 0}, {"id": 1}]}}}
    world.kubectl("patch", "cluster", "one", "--type=merge", f"-p={json.dumps(change)}")
    world.apply("flights", partitions=1)
    world.await_ready("flights")
    told = wait_for(
        lambda: world.events("Cluster", "one"),
        lambda events: any(reason == "InvalidSpec" for _, reason, _ in events),
        SECONDS_MAX,
    )
    (message,) = (message for _, reason, message in told if reason == "InvalidSpec")
    assert message.startswith("StatefulSet one-broker: spec.template.pod.spec.tolerations[0].operator: ")
    assert 'Unsupported value: "Perhaps"' in message
    assert world.stateful_set("one-broker") == before, "its pods would have nobody to start them again"


@pytest.mark.slow
def test_two_operators_at_once_come_to_the_same(world: World) -> None:
    operators = [world.operator(), world.operator()]
    try:
        _churn(world, lambda: None)
    finally:
        for each in operators:
            each.close()


@pytest.mark.slow
@pytest.mark.soak
def test_an_operator_that_is_killed_again_and_again_comes_to_the_same(world: World) -> None:
    chance, running = random.Random(seed()), [world.operator()]

    def kill_somewhere() -> None:
        """At any step of a round: rounds follow one another."""
        running[0].await_port()
        wait_for(lambda: chance.random() < 0.02)
        running[0].kill()
        running[0] = world.operator()

    try:
        for _ in range(RESTARTS):
            _churn(world, kill_somewhere)
    finally:
        running[0].close()


def _churn(world: World, disturb: Callable[[], None]) -> None:
    """Topics come, grow and go; at the end the broker has what is declared."""
    names = [f"t{number}" for number in range(8)]
    for name in names:
        world.apply(name, partitions=2, deletionPolicy="Delete")
    disturb()
    for name in names[:4]:
        world.kubectl("scale", f"topic/{name}", "--replicas=5")
    world.kubectl("delete", "topic", *names[6:], "--wait=false")
    disturb()
    expected = dict.fromkeys(names[:4], 5) | dict.fromkeys(names[4:6], 2)
    wait_for(world.partitions, lambda found: found == expected, SECONDS_MAX)
    world.await_ready(*names[:6])
    wait_for(world.topics, lambda found: found == names[:6], SECONDS_MAX)
    world.kubectl("delete", "topics", "--all")
    assert world.partitions() == {}
