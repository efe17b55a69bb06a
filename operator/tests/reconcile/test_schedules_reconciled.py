"""Schedules are created and deleted with their entries, and so are the rights of pods that start runs."""

from harness.maintenance_world import ARCHIVE, VOLUMES
from harness.worker_world import World, resource

STARTER = "one-maintenance-start"
RIGHTS = ("ServiceAccount", "RoleBinding")
NIGHTLY = {"name": "nightly", "schedule": "@daily", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES}


def declare(here: World, generation: int, *entries: object) -> None:
    body = resource("Cluster", "one", maintenance=list(entries))
    here.api.put({**body, "metadata": {**body["metadata"], "generation": generation}})


async def test_the_right_to_start_runs_is_removed_with_the_last_entry(here: World) -> None:
    declare(here, 1, NIGHTLY, {**NIGHTLY, "name": "weekly"})
    assert await here.round()
    declare(here, 2, NIGHTLY)
    assert await here.round()
    assert [each["metadata"]["name"] for each in here.api.of_kind("CronJob")] == ["one-nightly"]
    assert all(here.api.found(kind, STARTER) is not None for kind in RIGHTS), "an entry needs them"
    declare(here, 3)
    assert await here.round()
    assert here.api.of_kind("CronJob") == []
    assert [kind for kind in RIGHTS if here.api.found(kind, STARTER) is not None] == []
    declare(here, 4, NIGHTLY)
    assert await here.round()
    assert all(here.api.found(kind, STARTER) is not None for kind in RIGHTS), "an entry is there again"


async def test_a_service_account_of_another_owner_is_not_deleted(here: World) -> None:
    here.api.put({"kind": "ServiceAccount", "metadata": {"name": STARTER, "labels": {}}})
    declare(here, 1)
    assert await here.round()
    assert here.api.found("ServiceAccount", STARTER) is not None
