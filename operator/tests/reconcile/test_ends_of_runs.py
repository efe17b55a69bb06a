"""Finished runs of maintenance: each has a completion time, and is deleted after its TTL."""

from msgspec.structs import replace

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.cluster_state import APPROVAL
from barnabas_operator.planning.conditions import time_text
from harness.maintenance_world import CLUSTER, KIND, MaintenanceWorld


async def test_a_finished_run_is_deleted_after_its_ttl(runs: MaintenanceWorld) -> None:
    now = runs.clock.now_ms() // 1000
    runs.apply("a", ttlSecondsAfterFinished=60)
    await runs.poll()
    runs.driver_ends("a", 0)
    await runs.poll()
    status = runs.status("a")
    assert status["phase"] == "Succeeded"
    ended_s = 1_767_225_700  # 2026-01-01T00:01:40Z
    assert await runs.is_deleted_after("a", ended_s - now + 60)


async def test_a_lost_run_has_a_completion_time_and_is_deleted_after_its_ttl(runs: MaintenanceWorld) -> None:
    runs.apply("a", ttlSecondsAfterFinished=60)
    await runs.poll()
    runs.driver_is_lost("a")
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "RunLost")
    assert runs.status("a")["completionTime"] == time_text(runs.clock.now_ms())
    assert await runs.is_deleted_after("a", 60)


async def test_an_invalid_run_has_a_completion_time_and_is_deleted_after_its_ttl(runs: MaintenanceWorld) -> None:
    invalid = KubeRefused(422, "Invalid", "spec.template: no such field")
    runs.api.refuse = lambda _, path, body: invalid if path.endswith("/jobs") and body else None
    runs.apply("a", ttlSecondsAfterFinished=60)
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "InvalidOptions")
    assert runs.status("a")["completionTime"] == time_text(runs.clock.now_ms())
    assert await runs.is_deleted_after("a", 60)


async def test_a_run_whose_status_was_lost_is_deleted_a_ttl_after_that_was_noticed(runs: MaintenanceWorld) -> None:
    """The time when it ended is unknown."""
    runs.apply("a", ttlSecondsAfterFinished=60)
    await runs.poll()
    runs.driver_ends("a", 0)
    await runs.poll()
    runs.status_is_lost("a")
    runs.driver_is_lost("a")
    runs.restart()
    await runs.poll()
    assert runs.said("a")[0] == "Succeeded"
    assert "completionTime" not in runs.status("a")
    assert await runs.is_deleted_after("a", 60)


async def test_a_run_whose_plan_the_cluster_carries_out_is_not_deleted(runs: MaintenanceWorld) -> None:
    """Without its MaintenanceJob the rest of a plan would not move."""
    runs.apply("a", job="skew", options={"report": "/archive/a"}, ttlSecondsAfterFinished=60)
    await runs.poll()
    runs.driver_ends("a", 0)
    await runs.poll()
    named = {**CLUSTER.metadata.annotations, APPROVAL: "a"}
    asking = replace(CLUSTER, metadata=replace(CLUSTER.metadata, annotations=named))
    runs.clock.pass_time(1e9)
    runs.worker.begin(asking, runs.bodies())
    await runs.worker.poll()
    assert runs.api.found(KIND, "a") is not None
    runs.restart()
    runs.worker.rest(runs.bodies(), "the Cluster does not answer yet")
    await runs.worker.poll()
    assert runs.api.found(KIND, "a") is not None, "it is unknown which plan the Cluster carries out"
    await runs.poll()
    assert runs.api.found(KIND, "a") is None
