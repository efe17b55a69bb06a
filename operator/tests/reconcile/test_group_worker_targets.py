"""What runs a group's consumers does not stay at 0 for a reset, whatever becomes of the resource."""

import asyncio
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.groups.target_scale import BEFORE_RESET, BeforeReset, before_text
from harness.group_worker_world import WAIT_S, Json, World, lagging, play
from harness.worker_world import resource

SCALING = {"target": {"name": "app"}}
RESET = {"id": "a", "to": {"earliest": {}}, "whenActive": "ScaleDown"}


def put_target_at_0(world: World, name: str = "billing") -> None:
    """A reset of this resource has scaled it down."""
    before = before_text(BeforeReset(name, "a", 3))
    meta = {"name": "app", "namespace": "air", "annotations": {BEFORE_RESET: before}}
    world.api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 0}})


def replicas(world: World) -> int:
    found = world.api.found("Deployment", "app")
    assert found is not None
    return int(found["spec"]["replicas"])


def put_ending(world: World, name: str, **spec: Any) -> None:
    """Never told anything: its status was lost, or an operator died before it wrote it."""
    world.api.put(resource("ConsumerGroup", name, goes=True, held=True, **spec))


async def gone(world: World, name: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while world.api.found("ConsumerGroup", name) is not None:
            await asyncio.sleep(0)


def test_a_target_at_0_for_a_reset_is_scaled_up_before_the_resource_goes_whoever_has_the_group() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        put_ending(world, "billing", groupId="pay", scaling=SCALING, offsets={"reset": RESET})
        world.put("other", groupId="pay")
        world.begin()
        await world.next_look()
        world.looks.found.put({"pay": lagging(3)})
        await gone(world, "billing")
        assert replicas(world) == 3

    play(scenario)


@pytest.mark.parametrize("spec", [{}, {"pause": True}], ids=["Retain", "paused"])
def test_a_target_at_0_for_a_reset_is_scaled_up_although_the_cluster_is_away(spec: Json) -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        put_ending(world, "billing", scaling=SCALING, offsets={"reset": RESET}, **spec)
        world.worker.rest(world.bodies("ConsumerGroup"), "Cluster one is paused")
        await gone(world, "billing")
        assert replicas(world) == 3
        assert world.looks.asked.empty()

    play(scenario)


def test_a_protected_resource_that_shall_go_leaves_its_target_not_at_0() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        spec = {"scaling": SCALING, "offsets": {"reset": RESET}, "deletionPolicy": "Protect"}
        put_ending(world, "billing", **spec)
        ending = world.api.found("ConsumerGroup", "billing")
        assert ending is not None
        world.api.put({**ending, "status": {"groupId": "billing", "cluster": "one"}})
        world.begin()
        async with asyncio.timeout(WAIT_S):
            while "conditions" not in world.status("billing"):
                await asyncio.sleep(0)
        assert world.said("billing") == ("False", "DeletionProtected")
        assert replicas(world) == 3

    play(scenario)


def test_a_reset_that_is_taken_out_while_the_target_cannot_be_read_is_cleaned_up_later() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        waits = {"type": "OffsetsReset", "status": "False", "reason": "ScaledDown", "lastTransitionTime": "x"}
        status = {"groupId": "billing", "cluster": "one", "observedGeneration": 1, "conditions": [waits]}
        body = resource("ConsumerGroup", "billing", held=True, scaling=SCALING)
        world.api.put({**body, "metadata": {**body["metadata"], "generation": 2}, "status": status})
        refused = KubeRefused(403, "Forbidden", "not now")
        world.api.refuse = lambda _, path, __: refused if "/deployments/" in path else None
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3)})
        assert world.said("billing") == ("False", "KubernetesError")
        held = world.api.found("ConsumerGroup", "billing")
        assert held is not None
        assert held["metadata"]["finalizers"], "a deletion would leave the target at 0"
        world.api.refuse = lambda *_: None
        await world.find({"billing": lagging(3)})
        assert replicas(world) == 3

    play(scenario)
