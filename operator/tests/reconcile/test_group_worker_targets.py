"""The workload of a group's consumers does not stay at 0 for a reset, whatever happens to the resource."""

import asyncio
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.groups.scaling import BEFORE_RESET, BeforeReset, before_text
from barnabas_operator.reconcile.groups.group_poller import AWAY_S
from barnabas_operator.resources.kind import JsonObject
from harness.deadline import PATIENCE_S
from harness.group_worker_world import World, lagging
from harness.worker_world import resource

SCALING = {"target": {"name": "app"}}
RESET = {"id": "a", "to": {"earliest": {}}, "whenActive": "ScaleDown"}


def put_target_at_0(world: World, name: str = "billing") -> None:
    """Create the target as a reset of this resource has scaled it down."""
    before = before_text(BeforeReset(name, "a", 3))
    meta = {"name": "app", "namespace": "air", "annotations": {BEFORE_RESET: before}}
    world.api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 0}})


def replicas(world: World) -> int:
    found = world.api.found("Deployment", "app")
    assert found is not None
    return int(found["spec"]["replicas"])


def put_ending(world: World, name: str, **spec: Any) -> None:
    """Create a deleted resource without a status, which was lost or never written."""
    world.api.put(resource("ConsumerGroup", name, goes=True, held=True, **spec))


async def gone(world: World, name: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while world.api.found("ConsumerGroup", name) is not None:
            await asyncio.sleep(0)


async def test_a_target_at_0_is_scaled_up_before_removal_although_another_resource_has_the_group(
    world: World,
) -> None:
    put_target_at_0(world)
    put_ending(world, "billing", groupId="pay", scaling=SCALING, offsets={"reset": RESET})
    world.put("other", groupId="pay")
    world.begin()
    await world.next_progress()
    world.looks.found.put({"pay": lagging(3)})
    await gone(world, "billing")
    assert replicas(world) == 3


@pytest.mark.parametrize("spec", [{}, {"pause": True}], ids=["Retain", "paused"])
async def test_a_target_at_0_is_scaled_up_before_removal_although_the_cluster_is_paused(
    spec: JsonObject, world: World
) -> None:
    put_target_at_0(world)
    put_ending(world, "billing", scaling=SCALING, offsets={"reset": RESET}, **spec)
    world.worker.rest(world.bodies(), "Cluster one is paused")
    await gone(world, "billing")
    assert replicas(world) == 3
    assert world.looks.asked.empty()


async def test_a_protected_resource_that_is_deleted_does_not_leave_its_target_at_0(world: World) -> None:
    put_target_at_0(world)
    spec = {"scaling": SCALING, "offsets": {"reset": RESET}, "deletionPolicy": "Protect"}
    put_ending(world, "billing", **spec)
    ending = world.api.found("ConsumerGroup", "billing")
    assert ending is not None
    world.api.put({**ending, "status": {"groupId": "billing", "cluster": "one"}})
    world.begin()
    async with asyncio.timeout(PATIENCE_S):
        while "conditions" not in world.status("billing"):
            await asyncio.sleep(0)
    assert world.said("billing") == ("False", "DeletionProtected")
    assert replicas(world) == 3


async def look_without_target(world: World) -> None:
    """The API server refuses each request about the target while the worker looks for the first time."""
    refused = KubeRefused(403, "Forbidden", "not now")
    world.api.refuse = lambda _, path, __: refused if "/deployments/" in path else None
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})


async def test_a_reset_that_is_removed_while_its_target_is_unreadable_is_cleaned_up_later(world: World) -> None:
    put_target_at_0(world)
    waits = {"type": "OffsetsReset", "status": "False", "reason": "ScaledDown", "lastTransitionTime": "x"}
    status = {"groupId": "billing", "cluster": "one", "observedGeneration": 1, "conditions": [waits]}
    body = resource("ConsumerGroup", "billing", held=True, scaling=SCALING)
    world.api.put({**body, "metadata": {**body["metadata"], "generation": 2}, "status": status})
    await look_without_target(world)
    assert world.said("billing") == ("False", "KubernetesError")
    held = world.api.found("ConsumerGroup", "billing")
    assert held is not None
    assert held["metadata"]["finalizers"], "a deletion would leave the target at 0"
    world.api.refuse = lambda *_: None
    await world.find({"billing": lagging(3)})
    assert replicas(world) == 3


WAITS = {"type": "OffsetsReset", "status": "False", "reason": "ScaledDown", "lastTransitionTime": "x"}


def put_resetting(world: World, **spec: Any) -> None:
    """Create a resource whose reset has scaled the target down and waits for members to leave."""
    put_target_at_0(world)
    body = resource("ConsumerGroup", "billing", held=True, scaling=SCALING, offsets={"reset": RESET}, **spec)
    status = {"groupId": "billing", "cluster": "one", "observedGeneration": 1, "conditions": [WAITS]}
    world.api.put({**body, "status": status})


def before_reset(world: World) -> object:
    """Return the annotation that a reset left on the target."""
    found = world.api.found("Deployment", "app")
    assert found is not None
    return found["metadata"]["annotations"].get(BEFORE_RESET)


async def until_up(world: World) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while replicas(world) != 3 or before_reset(world) is not None:
            await asyncio.sleep(0)


@pytest.mark.parametrize("spec", [{"pause": True}, {"groupId": "another"}], ids=["paused", "refused"])
async def test_a_target_does_not_stay_at_0_while_its_resource_is_paused_or_refused(
    spec: JsonObject, world: World
) -> None:
    put_resetting(world, **spec)
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3), "another": lagging(3)})
    assert replicas(world) == 3
    assert before_reset(world) is None
    assert world.said("billing", "OffsetsReset") == ("False", "OnHold")
    world.api.refuse = lambda _, path, __: pytest.fail(path) if "/deployments/" in path else None
    await world.find({"billing": lagging(3), "another": lagging(3)})  # It is scaled up, so it is not read any more.


async def test_a_target_does_not_stay_at_0_while_the_cluster_is_paused_or_silent_for_long(world: World) -> None:
    put_resetting(world)
    world.worker.rest(world.bodies(), "Cluster one is paused")
    async with asyncio.timeout(PATIENCE_S):
        while world.rounds < 3:
            await asyncio.sleep(0)
    assert replicas(world) == 0, "in a roll brokers are silent for a moment"
    world.clock.pass_time(AWAY_S + 1)
    await until_up(world)
    async with asyncio.timeout(PATIENCE_S):
        while world.said("billing", "OffsetsReset")[1] != "OnHold":
            await asyncio.sleep(0)
    assert world.said("billing") == ("False", "ClusterNotReady")


async def test_scaling_up_a_target_is_retried_if_it_fails_during_a_pause(world: World) -> None:
    put_resetting(world, pause=True)
    await look_without_target(world)
    assert world.said("billing", "OffsetsReset") == ("False", "KubernetesError")
    world.api.refuse = lambda *_: None
    await world.find({"billing": lagging(3)})
    assert replicas(world) == 3


async def test_a_worker_stops_only_after_its_current_look_has_ended(world: World) -> None:
    world.put("billing")
    world.begin()
    await world.next_progress()
    stopping = asyncio.create_task(world.worker.release({}))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not stopping.done()
    world.looks.found.put({"billing": lagging(3)})
    async with asyncio.timeout(PATIENCE_S):
        await stopping
    assert world.said("billing") == ("True", "Reconciled")
    assert world.looks.asked.empty()


async def test_scaling_stays_active_while_others_change_the_target(world: World) -> None:
    meta = {"name": "app", "namespace": "air"}
    world.api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 1}})
    group = resource("ConsumerGroup", "billing", scaling={**SCALING, "lagThreshold": 1})
    world.api.put({**group, "metadata": {**group["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z"}})
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(1)})
    assert world.said("billing", "ScalingActive") == ("True", "FollowsLag")
    world.advance(15)
    changed = KubeRefused(409, "Conflict", "its pods have just become ready")
    world.api.refuse = lambda _, path, __: changed if path.endswith("/scale") else None
    await world.find({"billing": lagging(9)})
    assert world.said("billing", "ScalingActive") == ("True", "FollowsLag")
    world.api.refuse = lambda *_: None
    await world.find({"billing": lagging(9)})
    assert replicas(world) == 9
