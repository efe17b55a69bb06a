"""The worker for groups over an API server in memory: what it writes, and how rarely."""

import asyncio
import math

from barnabas_lag.evaluation.lags import Status
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.reconcile.groups.group_poller import AWAY_S, PACE
from barnabas_operator.reconcile.worker_environment import FINALIZER
from harness.deadline import PATIENCE_S
from harness.group_worker_world import GONE, World, lagging
from harness.worker_world import resource


async def test_a_look_at_two_thousand_groups_writes_only_changes_and_a_few_numbers(world: World) -> None:
    names = [f"group-{number}" for number in range(2_000)]
    for name in names:
        world.put(name)
    world.begin()
    assert set(await world.next_progress()) == set(names)
    assert await world.find(dict.fromkeys(names, lagging(500))) == len(names)
    assert await world.find(dict.fromkeys(names, lagging(500))) == 0
    assert await world.find(dict.fromkeys(names, lagging(700))) == 0, "numbers were written a moment ago"
    world.advance(PACE.every_s)
    assert await world.find(dict.fromkeys(names, lagging(702))) == PACE.at_once_max
    assert await world.find(dict.fromkeys(names, lagging(702))) == PACE.at_once_max
    written = [name for name in names if world.status(name)["lag"] == 700]
    assert len(written) == 2 * PACE.at_once_max, "those that have waited longest have their turn first"
    changed = {**dict.fromkeys(names, lagging(702)), "group-7": lagging(702, Status.STALL)}
    assert await world.find(changed) <= PACE.at_once_max + 2, "a status and an Event at once"
    assert world.status("group-7")["evaluation"] == "STALL"


async def test_a_group_of_a_silent_cluster_is_reported_after_a_while_without_its_numbers(world: World) -> None:
    world.put("billing", lagObjective={"maxRecords": 5})
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})
    assert world.said("billing") == ("True", "Reconciled")
    assert await world.find(None) == 0
    world.advance(AWAY_S + 1)
    await world.find(None)
    assert world.said("billing") == ("False", "ClusterNotReady")
    assert world.said("billing", "WithinObjective") == ("Unknown", "ClusterNotReady")
    assert "lag" not in world.status("billing")
    assert world.status("billing")["groupId"] == "billing"
    await world.find({"billing": lagging(3)})
    assert world.said("billing") == ("True", "Reconciled")


async def test_an_existing_group_is_not_adopted_if_adopt_is_false(world: World) -> None:
    world.put("billing", adopt=False)
    world.put("new", adopt=False)
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3), "new": GONE})
    assert world.said("billing") == ("False", "ResourceConflict")
    assert "groupId" not in world.status("billing")
    await world.find({"billing": lagging(3), "new": lagging(3)})
    assert world.said("new") == ("True", "Reconciled")


async def test_a_group_that_disappears_causes_an_event_and_no_error(world: World) -> None:
    world.put("billing")
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})
    await world.find({"billing": GONE})
    assert world.said("billing") == ("True", "Reconciled")
    assert world.status("billing")["state"] == "NotFound"
    assert [reason for reason, _ in world.api.events()] == ["GroupGone"]


async def test_a_paused_group_is_observed_and_not_changed(world: World) -> None:
    world.put("billing", pause=True, offsets={"reset": {"id": "a", "to": {"earliest": {}}}})
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})
    assert world.said("billing") == ("Unknown", "Paused")
    assert world.status("billing")["lag"] == 3
    assert "OffsetsReset" not in [each["type"] for each in world.status("billing")["conditions"]]


async def test_an_invalid_resource_is_reported_and_holds_up_no_other(world: World) -> None:
    world.put("billing", lagObjective={"maxRecords": "many"})
    world.put("pay")
    world.begin()
    assert set(await world.next_progress()) == {"pay"}
    await world.find({"pay": lagging(3)})
    assert world.said("billing") == ("False", "InvalidSpec")
    assert world.said("pay") == ("True", "Reconciled")


async def test_the_groups_of_a_paused_cluster_are_not_observed_and_only_those_to_retain_can_be_deleted(
    world: World,
) -> None:
    for name, policy in (("billing", "DeleteGroup"), ("pay", "Retain"), ("stays", "DeleteGroup")):
        body = resource("ConsumerGroup", name, deletionPolicy=policy)
        going = {} if name == "billing" else {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        world.api.put({**body, "metadata": {**body["metadata"], "finalizers": [FINALIZER], **going}})
    world.worker.rest(world.bodies(), "Cluster one is paused")
    async with asyncio.timeout(PATIENCE_S):
        while world.api.found("ConsumerGroup", "pay") is not None or not all(
            "conditions" in world.status(name) for name in ("billing", "stays")
        ):
            await asyncio.sleep(0)
    assert world.said("billing") == world.said("stays") == ("False", "ClusterNotReady")
    assert world.looks.asked.empty()


async def test_a_hanging_look_counts_as_idle_time(world: World) -> None:
    world.put("billing")
    world.begin()
    await world.next_progress()
    world.advance(700.0)
    assert world.worker.idle_s == 700.0
    await world.find({"billing": lagging(3)})


async def test_a_protected_resource_stays_and_one_that_never_had_its_group_is_removed(world: World) -> None:
    world.put("billing", deletionPolicy="Protect")
    world.put("pay", deletionPolicy="DeleteGroup", adopt=False)
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3), "pay": lagging(3)})
    for name in ("billing", "pay"):
        found = world.api.found("ConsumerGroup", name)
        assert found is not None
        world.api.put({**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
    world.begin()
    world.looks.found.put({})
    async with asyncio.timeout(PATIENCE_S):
        while world.api.found("ConsumerGroup", "pay") is not None or world.said("billing")[0] != "False":
            await asyncio.sleep(0)
    assert world.said("billing") == ("False", "DeletionProtected")


async def test_the_younger_resource_does_nothing_while_the_older_one_waits_for_its_finalizer(world: World) -> None:
    old, young = (resource("ConsumerGroup", name, groupId="pay") for name in ("old", "young"))
    old["spec"]["deletionPolicy"] = "DeleteGroup"
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    world.api.put(old)
    world.api.put(young)
    conflict = KubeRefused(409, "Conflict", "others wrote it")
    world.api.refuse = lambda _, path, __: conflict if path.endswith("/old") else None
    world.begin()
    await world.next_progress()
    await world.find({"pay": lagging(3)})
    assert world.said("young") == ("False", "ResourceConflict")
    assert "groupId" not in world.status("young")


async def test_a_worker_makes_no_looks_without_the_lease_and_waits_to_be_started_again(world: World) -> None:
    async def rounds(world: World) -> None:
        before = world.rounds
        async with asyncio.timeout(PATIENCE_S):
            while world.rounds < before + 3:
                await asyncio.sleep(0)

    world.put("billing")
    world.begin()
    await world.next_progress()
    world.leadership.stop()
    world.looks.found.put({"billing": lagging(3)})
    await rounds(world)
    assert world.looks.asked.empty()
    world.leadership.renewed(math.inf)
    await rounds(world)
    assert world.looks.asked.empty(), "the Cluster may have been paused meanwhile"
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})


async def test_an_older_invalid_resource_does_not_manage_the_group(world: World) -> None:
    created = {"b-young": "2026-11-02T00:00:00Z", "c-younger": "2026-11-03T00:00:00Z"}
    for name, at in created.items():
        body = resource("ConsumerGroup", name, groupId="billing")
        world.api.put({**body, "metadata": {**body["metadata"], "creationTimestamp": at}})
    body = resource("ConsumerGroup", "a-old", groupId="billing", lagObjective={"maxRecords": "many"})
    world.api.put({**body, "metadata": {**body["metadata"], "creationTimestamp": "2026-11-01T00:00:00Z"}})
    world.begin()
    await world.next_progress()
    await world.find({"billing": lagging(3)})
    assert world.said("a-old") == ("False", "InvalidSpec")
    assert world.said("b-young") == ("True", "Reconciled")
    assert world.said("c-younger") == ("False", "ResourceConflict")
