"""Runs of maintenance that are over: each has an end, and is deleted so long after it."""

from msgspec.structs import replace

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.rebalance_request import APPROVAL
from barnabas_operator.planning.time_text import time_text
from harness.maintenance_world import CLUSTER, KIND, MaintenanceWorld, play_maintenance


def test_it_is_deleted_so_long_after_its_end() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        now = world.clock.now_ms() // 1000
        world.apply("a", ttlSecondsAfterFinished=60)
        await world.look()
        world.driver_ends("a", 0)
        await world.look()
        status = world.status("a")
        assert status["phase"] == "Succeeded"
        ended_s = 1_767_225_700  # 2026-01-01T00:01:40Z
        assert await world.is_deleted_after("a", ended_s - now + 60)

    play_maintenance(scenario)


def test_a_run_that_was_lost_has_an_end_and_is_deleted_so_long_after_it() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", ttlSecondsAfterFinished=60)
        await world.look()
        world.driver_is_lost("a")
        await world.look()
        assert world.said("a")[:2] == ("Failed", "RunLost")
        assert world.status("a")["completionTime"] == time_text(world.clock.now_ms())
        assert await world.is_deleted_after("a", 60)

    play_maintenance(scenario)


def test_a_run_that_can_never_begin_has_an_end_and_is_deleted_so_long_after_it() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        invalid = KubeRefused(422, "Invalid", "spec.template: no such field")
        world.api.refuse = lambda _, path, body: invalid if path.endswith("/jobs") and body else None
        world.apply("a", ttlSecondsAfterFinished=60)
        await world.look()
        assert world.said("a")[:2] == ("Failed", "InvalidOptions")
        assert world.status("a")["completionTime"] == time_text(world.clock.now_ms())
        assert await world.is_deleted_after("a", 60)

    play_maintenance(scenario)


def test_a_run_whose_status_was_lost_is_deleted_so_long_after_that_was_found() -> None:
    """Nobody knows when it ended."""

    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", ttlSecondsAfterFinished=60)
        await world.look()
        world.driver_ends("a", 0)
        await world.look()
        body = world.api.found(KIND, "a") or {}
        world.api.put({name: value for name, value in body.items() if name != "status"})
        world.driver_is_lost("a")
        world.restart()
        await world.look()
        assert world.said("a")[0] == "Succeeded"
        assert "completionTime" not in world.status("a")
        assert await world.is_deleted_after("a", 60)

    play_maintenance(scenario)


def test_a_plan_that_the_cluster_carries_out_is_not_deleted_meanwhile() -> None:
    """Without its MaintenanceJob the rest of a plan would not move."""

    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", job="skew", options={"report": "/archive/a"}, ttlSecondsAfterFinished=60)
        await world.look()
        world.driver_ends("a", 0)
        await world.look()
        named = {**CLUSTER.metadata.annotations, APPROVAL: "a"}
        asking = replace(CLUSTER, metadata=replace(CLUSTER.metadata, annotations=named))
        world.clock.pass_time(1e9)
        world.worker.begin(asking, world.bodies())
        await world.worker.look()
        assert world.api.found(KIND, "a") is not None
        world.restart()
        world.worker.rest(world.bodies(), "the Cluster does not answer yet")
        await world.worker.look()
        assert world.api.found(KIND, "a") is not None, "nobody knows what it asks for"
        await world.look()
        assert world.api.found(KIND, "a") is None

    play_maintenance(scenario)
