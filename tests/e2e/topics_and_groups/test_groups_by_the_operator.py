"""The operator process on a real API server, with a real broker and real consumers: the status of ConsumerGroups."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from e2e.world import World, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

POLL_S = 0.5
"""A group stalls after two seconds without progress, so it may be OK or STALL here on a busy machine."""


@pytest.fixture
def world(
    defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[World]:
    namespace = f"groups-{os.getpid()}-{abs(hash(request.node.name)) % 10**8}"
    with world_of_one(defined_api_server, namespace, broker, tmp_path) as found:
        yield found


@pytest.fixture
def operator(world: World) -> Iterator[ServerProcess]:
    with closing(world.operator(GROUP_POLL_SECONDS=str(POLL_S))) as process:
        yield process


class Groups:
    """ConsumerGroups of a namespace, and the topic `flights` that they read."""

    def __init__(self, world: World, partitions: int = 2) -> None:
        self._world = world
        world.apply("flights", partitions=partitions)
        world.await_ready("flights")

    def apply(self, name: str, **spec: object) -> None:
        meta = {"name": name, "namespace": self._world.namespace}
        self._world.plane.requests.apply(
            {"apiVersion": "barnabas.dev/v1alpha1", "kind": "ConsumerGroup", "metadata": meta, "spec": spec}
        )

    def status(self, name: str) -> Mapping[str, Any]:
        found = self._world.plane.requests.get("ConsumerGroup", self._world.namespace, name) or {}
        status: Mapping[str, Any] = found.get("status", {})
        return status

    def said(self, name: str, kind: str = "Ready") -> tuple[str, str, str]:
        """Return status, reason and message of a condition, or empty texts if there is none."""
        told: Mapping[str, Any] = next(
            (each for each in self.status(name).get("conditions", ()) if each["type"] == kind), {}
        )
        return told.get("status", ""), told.get("reason", ""), told.get("message", "")

    def await_said(self, name: str, *expected: str, kind: str = "Ready") -> str:
        """Wait until a condition has this status and reason; return its message."""
        return wait_for(lambda: self.said(name, kind), lambda said: said[:2] == expected, PATIENCE_S)[2]

    def await_status(self, name: str, **fields: object) -> Mapping[str, Any]:
        return wait_for(lambda: self.status(name), lambda status: fields.items() <= status.items(), PATIENCE_S)

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._world.bootstrap})
        for number in range(count):
            producer.produce("flights", b"x", partition=number % 2)
        assert producer.flush(PATIENCE_S) == 0

    @contextmanager
    def consumer(self, group_id: str) -> Iterator[Consumer]:
        """Run a consumer that has joined."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._world.bootstrap,
                "group.id": group_id,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["flights"])
        wait_for(lambda: (consumer.poll(0.1), consumer.assignment())[1], lambda had: len(had) == 2, PATIENCE_S)
        try:
            yield consumer
        finally:
            consumer.close()


@pytest.fixture
def groups(world: World, operator: ServerProcess) -> Groups:
    return Groups(world)


def commit(consumer: Consumer, *offsets: int) -> None:
    """Commit an offset in each partition of `flights`."""
    at = [TopicPartition("flights", number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=at, asynchronous=False)


def test_the_status_and_columns_of_a_group_show_its_state_members_and_lag(world: World, groups: Groups) -> None:
    groups.write(200)
    groups.apply("billing", groupId="pay")
    with groups.consumer("pay") as consumer:
        commit(consumer, 40, 100)
        status = groups.await_status("billing", state="Stable", members=1, lag=60, topicCount=1)
        (topic,) = status["topics"]
        assert topic["topic"] == "flights"
        assert (topic["partitions"], topic["lag"]) == (2, 60)
        (member,) = status["consumers"]
        assert (member["clientId"], member["partitions"]) == ("reader", 2)
        columns = world.kubectl("get", "bg", "billing", "--no-headers").split()
    assert columns[:6] == ["billing", "True", "pay", "Stable", "1", "60"]


def test_the_older_of_two_resources_manages_the_group(world: World, groups: Groups) -> None:
    groups.apply("billing")
    groups.await_said("billing", "True", "Reconciled")
    groups.apply("pay", groupId="billing")
    why = groups.await_said("pay", "False", "ResourceConflict")
    assert why == "Group billing is managed by the older resource billing; delete the newer ConsumerGroup"
    assert "groupId" not in groups.status("pay")
