"""Runs whose address, credentials or image changes: their Jobs are made again, without a loss of work."""

import contextlib
import dataclasses
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.planning.maintenance.observed_run import MARK
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE, CLUSTER, KIND, SETTINGS, MaintenanceWorld, maintenance_world
from harness.worker_world import resource

SECURED = resource_of(Cluster, resource("Cluster", "one", insecure=False))
CONTINUOUS = {**ARCHIVE, "continuous": "true"}


def command(world: MaintenanceWorld, name: str = "a") -> list[str]:
    job = world.job(name)
    assert job is not None
    found: list[str] = job["spec"]["template"]["spec"]["containers"][0]["command"]
    return found


def has_credentials(world: MaintenanceWorld) -> bool:
    return any(word.startswith("--command-config=") for word in command(world))


async def test_a_failed_driver_begins_again_with_the_credentials_of_a_cluster_that_was_secured_meanwhile(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    assert not has_credentials(runs)
    runs.attempt_fails("a")
    runs.cluster = SECURED
    await runs.poll()
    assert runs.job("a") is None
    assert runs.said("a")[:2] == ("Running", "BeginsAgain")
    await runs.poll()
    assert has_credentials(runs)
    assert (runs.job("a") or {})["spec"]["suspend"] is False
    assert runs.said("a")[:2] == ("Running", "Running")
    runs.driver_ends("a", 0)
    await runs.poll()
    assert runs.said("a")[0] == "Succeeded"


@pytest.mark.parametrize(("options", "is_new"), [(CONTINUOUS, True), (ARCHIVE, False)])
async def test_only_a_continuous_run_begins_again_with_a_new_image_while_its_driver_works(
    runs: MaintenanceWorld, options: dict[str, str], is_new: bool
) -> None:
    runs.apply("a", options=options)
    await runs.poll()
    runs.driver_runs("a", phase="archiving")
    runs.settings = dataclasses.replace(SETTINGS, jobs_image="jobs:next")
    runs.restart()
    await runs.poll()
    assert (runs.job("a") is None) == is_new
    if is_new:
        await runs.poll()
        assert runs.said("a")[1] == "BeginsAgain", "the driver has not ended yet"
        assert runs.job("a") is None
        runs.pods_go("a")
    await runs.poll()
    found = (runs.job("a") or {})["spec"]["template"]["spec"]["containers"][0]["image"]
    assert found == ("jobs:next" if is_new else "jobs:dev")


@pytest.mark.parametrize("exit_code", [0, 2, 3])
async def test_a_run_whose_driver_has_done_its_work_does_not_begin_again(
    runs: MaintenanceWorld, exit_code: int
) -> None:
    runs.apply("a")
    await runs.poll()
    runs.attempt_fails("a", exit_code)
    runs.cluster = SECURED
    await runs.poll()
    assert runs.job("a") is not None


async def test_a_run_does_not_begin_again_while_no_run_may_begin(runs: MaintenanceWorld) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    runs.driver_runs("a")
    runs.cluster = SECURED
    await runs.poll("no broker answers")
    assert runs.job("a") is not None


async def test_a_run_whose_job_is_deleted_by_others_is_lost_and_does_not_begin_again(runs: MaintenanceWorld) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    runs.driver_is_lost("a")
    runs.cluster = SECURED
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "RunLost")


async def test_a_run_begins_again_if_an_operator_dies_at_any_write_and_another_follows() -> None:
    died = 0
    for write in count():
        async with maintenance_world() as world:
            world.apply("a", options=CONTINUOUS)
            await world.poll()
            world.attempt_fails("a")
            world.cluster = SECURED
            is_dead = await _looks_until_it_dies_at(world, write)
            world.restart()
            for _ in range(3):
                await world.poll()
            assert has_credentials(world)
            assert (world.job("a") or {})["spec"]["suspend"] is False
            assert (world.api.found(KIND, "a") or {})["metadata"]["annotations"][MARK] == "a Started"
            died += is_dead
            if not is_dead:
                break
    assert died > 6


async def _looks_until_it_dies_at(world: MaintenanceWorld, write: int) -> bool:
    """Return True if the operator died at that write, before the API server applied it."""
    numbers = count()

    def dies(method: str, _path: str, _body: Any) -> Exception | None:
        if method == "GET":
            return None
        return KubeUnreachable("it is dead") if next(numbers) >= write else None

    world.api.refuse = dies
    with contextlib.suppress(KubeUnreachable):
        for _ in range(3):
            await world.poll()
    world.api.refuse = lambda *_: None
    return next(numbers) > write


async def test_a_run_does_not_begin_again_because_an_admission_webhook_has_changed_the_image_of_its_job(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    job = runs.job("a") or {}
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/jobs:dev"
    runs.api.put(job)
    runs.driver_runs("a")
    await runs.poll()
    assert runs.job("a") is not None
    assert runs.said("a")[1] == "Running"


async def test_a_job_of_an_earlier_operator_without_a_digest_is_judged_by_its_image_and_command(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    job = runs.job("a") or {}
    del job["metadata"]["annotations"]
    runs.api.put(job)
    runs.attempt_fails("a")
    await runs.poll()
    assert runs.job("a") is not None
    runs.cluster = SECURED
    await runs.poll()
    assert runs.job("a") is None


async def test_a_run_with_an_unchanged_start_keeps_its_job_when_the_cluster_changes(runs: MaintenanceWorld) -> None:
    runs.apply("a", options=CONTINUOUS)
    await runs.poll()
    runs.driver_runs("a")
    more = replace(CLUSTER.spec, brokers=replace(CLUSTER.spec.brokers, replicas=5))
    runs.cluster = replace(CLUSTER, spec=more)
    before = runs.job("a")
    await runs.poll()
    assert runs.job("a") == before
