"""An operator that starts is told of resources one after the other: no round takes a part of them for all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas_operator.kube import api
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.watch import kopf_registry as watch
from e2e.operators.watching_operator import use_api_server, watching
from e2e.world import SECONDS_MAX, WAIT_S, World
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane

OTHERS = 40
TOPIC = "flights"
REFUSED = "False", "Topic flights is managed by the older resource z-old; allowed: one Topic each"


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    namespace = f"first-{uuid4().hex[:8]}"
    defined_api_server.kubectl("create", "namespace", namespace)
    found = World(defined_api_server, namespace, broker, tmp_path)
    yield found
    defined_api_server.kubectl("delete", "namespace", namespace, "--wait=false")
    if TOPIC in found.partitions():
        found.admin.delete_topics([TOPIC])[TOPIC].result(WAIT_S)


def created(world: World, name: str) -> str:
    found = world.topic(name)
    return str(found["metadata"]["creationTimestamp"]) if found is not None else ""


def apply_after(world: World, older: str, name: str, **spec: object) -> None:
    """Kubernetes tells the time to the second: until it is another, it is made anew."""

    def is_younger() -> bool:
        world.plane.requests.delete("Topic", world.namespace, name) if world.topic(name) is not None else None
        world.apply(name, **spec)
        return created(world, name) > created(world, older)

    wait_for(is_younger)


def test_a_younger_topic_that_is_listed_first_does_not_take_what_the_older_has(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer has one resource, and they are told by name: the younger comes long before the older."""
    monkeypatch.setattr(watch, "CHUNK", 1)
    monkeypatch.setattr(api, "PAGE", 1)
    use_api_server(world.plane, monkeypatch)
    world.apply_cluster("one")
    world.apply("z-old", topicName=TOPIC, partitions=2)
    for number in range(OTHERS):
        world.apply(f"m{number:02d}", pause=True)
    apply_after(world, "z-old", "a-young", topicName=TOPIC, partitions=9)

    async def scenario() -> None:
        async with watching(OperatorSettings("image", (world.namespace,), world.bootstrap)):
            await asyncio.to_thread(world.await_ready, "z-old")
            await asyncio.to_thread(wait_for, lambda: world.ready("a-young"), lambda said: said == REFUSED, SECONDS_MAX)

    asyncio.run(scenario())
    assert world.partitions()[TOPIC] == 2
