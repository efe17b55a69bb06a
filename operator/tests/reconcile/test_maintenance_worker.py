"""Each run of maintenance is done once, even if operators die or objects are lost."""

import contextlib
from itertools import count
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.planning.maintenance.observed_run import MARK
from barnabas_operator.reconcile.worker_environment import FINALIZER
from barnabas_operator.resources.kind import Json
from harness.maintenance_world import ARCHIVE, KIND, MaintenanceWorld, maintenance_world

WRITES_MAX = 50


def marks(world: MaintenanceWorld, name: str) -> Any:
    return (world.api.found(KIND, name) or {})["metadata"].get("annotations", {}).get(MARK)


async def test_a_run_has_a_job_a_service_and_rights_and_ends_with_its_result(runs: MaintenanceWorld) -> None:
    runs.apply("a", executors=2)
    assert await runs.poll()
    job = runs.job("a")
    assert job is not None
    assert job["spec"]["suspend"] is False
    assert runs.api.found("Service", "a-driver") is not None
    assert runs.api.found("NetworkPolicy", "a-driver") is not None
    assert runs.api.found("RoleBinding", "one-maintenance") is not None
    assert marks(runs, "a") == "a Started"
    runs.driver_runs("a", phase="reading", records={"done": 43, "total": 100}, stages={"done": 1, "total": None})
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a")[:2] == ("Running", "Running")
    status = runs.status("a")
    assert (status["progress"], status["records"]["done"], status["activity"]) == ("43%", 43, "reading")
    runs.driver_ends("a", 0, message="archived 100 records", result={"records": 100}, ledger="barnabas.flights")
    assert await runs.poll()
    assert runs.said("a") == ("Succeeded", "Succeeded", "archived 100 records")
    status = runs.status("a")
    assert status["result"] == {"records": 100}
    assert (status["duration"], status["progress"], status["ledger"]) == ("1m40s", "100%", "barnabas.flights")
    assert not await runs.poll()
    assert FINALIZER not in (runs.api.found(KIND, "a") or {})["metadata"].get("finalizers", ())
    assert [reason for reason, _ in runs.api.events()] == ["Running", "Succeeded"]


async def begun_by_an_operator_that_dies_at(world: MaintenanceWorld, write: int) -> bool:
    """Begin runs; return True if the operator died at that write, before the API server applied it."""
    numbers = count()

    def dies(method: str, _path: str, _body: object) -> Exception | None:
        if method == "GET":
            return None
        return KubeUnreachable("it is dead") if next(numbers) >= write else None

    world.api.refuse = dies
    with contextlib.suppress(KubeUnreachable):
        await world.poll()
    world.api.refuse = lambda *_: None
    return next(numbers) > write


@pytest.mark.parametrize("is_job_lost", [False, True])
async def test_a_run_starts_once_if_an_operator_dies_at_any_write_and_another_follows(
    is_job_lost: bool,
) -> None:
    died_at: list[int] = []
    while WRITES_MAX not in died_at:
        async with maintenance_world() as world:
            write = len(died_at)
            world.apply("a")
            if await begun_by_an_operator_that_dies_at(world, write):
                died_at.append(write)
            else:
                died_at.append(WRITES_MAX)
            was_let_go = (world.job("a") or {"spec": {"suspend": True}})["spec"]["suspend"] is False
            if is_job_lost:
                world.api.objects.pop("/apis/batch/v1/namespaces/air/jobs/a-driver", None)
            world.restart()
            await world.poll()
            if is_job_lost and was_let_go:
                assert world.job("a") is None
                assert world.said("a")[:2] == ("Failed", "RunLost")
            if not is_job_lost:
                assert (world.job("a") or {})["spec"]["suspend"] is False
    assert len(died_at) > 6


async def test_a_run_whose_status_was_lost_with_its_job_is_not_run_again(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.driver_ends("a", 0, message="done")
    await runs.poll()
    runs.status_is_lost("a")
    runs.driver_is_lost("a")
    runs.restart()
    await runs.poll()
    assert runs.job("a") is None
    assert runs.said("a")[:2] == ("Succeeded", "Succeeded")
    assert "lost" in runs.said("a")[2]


async def test_a_copy_of_a_run_under_another_name_runs(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.driver_ends("a", 0, message="done")
    await runs.poll()
    copied = (runs.api.found(KIND, "a") or {})["metadata"]["annotations"]
    runs.apply("b")
    body = runs.api.found(KIND, "b") or {}
    runs.api.put({**body, "metadata": {**body["metadata"], "annotations": copied}})
    await runs.poll()
    assert runs.said("b")[0] == "Running"
    assert runs.job("b") is not None


async def test_a_lost_status_is_restored_from_the_job(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.driver_ends("a", 3, message="flights-0 differs at offset 7")
    runs.status_is_lost("a")
    runs.restart()
    await runs.poll()
    assert runs.said("a") == ("Failed", "FoundSomething", "flights-0 differs at offset 7")


async def test_a_run_waits_for_an_earlier_run_of_the_same_job_and_topic_and_names_it(runs: MaintenanceWorld) -> None:
    runs.apply("second", made="2026-01-01T00:00:01Z", options={**ARCHIVE, "archive": "/archive/other"})
    runs.apply("first")
    runs.apply("verifies", job="verify")
    await runs.poll()
    phase, reason, message = runs.said("second")
    assert (phase, reason) == ("Pending", "OtherRunUnderWay")
    assert "topic flights is under way in the MaintenanceJob first" in message
    assert runs.job("second") is None
    assert runs.job("verifies") is not None
    runs.driver_ends("first", 0, message="done")
    await runs.poll()
    await runs.poll()
    assert runs.said("second")[0] == "Running"


async def test_a_run_of_a_paused_cluster_waits_and_a_started_one_continues(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.apply("b", options={"topic": "orders", "archive": "/archive/orders"})
    await runs.poll("Cluster one is paused; to end the pause, set spec.pause of the Cluster to false")
    assert runs.said("b") == (
        "Pending",
        "ClusterNotReady",
        "Cluster one is paused; to end the pause, set spec.pause of the Cluster to false",
    )
    runs.driver_ends("a", 0, message="done")
    await runs.poll("Cluster one is paused; to end the pause, set spec.pause of the Cluster to false")
    assert runs.said("a")[0] == "Succeeded"
    assert runs.job("b") is None


async def test_a_run_with_a_wrong_option_never_starts(runs: MaintenanceWorld) -> None:
    runs.apply("a", options={"topic": "flights", "archive": "/a", "bootstrap": "x:1", "commit_records": "many"})
    await runs.poll()
    phase, reason, message = runs.said("a")
    assert (phase, reason) == ("Failed", "InvalidOptions")
    assert "spec.options.bootstrap is x:1; remove the option" in message
    assert "spec.options.commit_records is 'many'; allowed: a whole number, 1 or more" in message
    assert runs.job("a") is None


async def test_a_deleted_run_is_removed_after_its_pods_have_ended(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.driver_runs("a")
    body = runs.api.found(KIND, "a") or {}
    runs.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:09Z"}})
    runs.apply("b")
    await runs.poll()
    assert runs.job("a") is None
    assert runs.said("b")[1] == "OtherRunUnderWay"
    assert runs.said("a")[1:] == ("Deleting", "waiting for the pods of the run to end; pods that still run: 1")
    runs.pods_go("a")
    await runs.poll()
    assert runs.api.found(KIND, "a") is None
    await runs.poll()
    assert runs.said("b")[0] == "Running"


async def test_numbers_are_written_every_ten_seconds_and_other_changes_at_once(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    for done in range(1, 6):
        runs.driver_runs("a", phase="reading", records={"done": done, "total": 10})
        runs.clock.pass_time(4.0)
        await runs.poll()
    writes = [each for each in runs.api.writes if each.endswith("/maintenancejobs/a/status")]
    assert len(writes) == 3  # It begins; it has a driver; 12 s later it has other numbers.
    runs.driver_ends("a", 1, message="the disk is full")
    await runs.poll()
    assert runs.said("a") == ("Failed", "JobFailed", "the disk is full")


async def test_a_total_that_is_no_longer_known_is_removed_from_the_status(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    for records in ({"done": 5, "total": 10}, {"done": 0, "total": None}):
        await runs.poll()
        runs.driver_runs("a", phase="reading", records=records)
        runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.status("a")["records"] == {"done": 0}
    before = len(runs.api.writes)
    await runs.poll()
    assert len(runs.api.writes) == before


async def test_the_status_reports_why_kubernetes_creates_no_driver(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    why = 'Error creating: pods "a-driver-" is forbidden: exceeded quota: air'
    uid = (runs.job("a") or {})["metadata"]["uid"]
    for about, said in ((uid, why), ("an earlier one", "something else")):
        job = {"kind": "Job", "name": "a-driver", "uid": about}
        meta = {"name": said[:5], "creationTimestamp": "2026-01-01T00:00:00Z"}
        runs.api.put({"kind": "Event", "metadata": meta, "involvedObject": job, "message": said})
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a") == ("Running", "Running", f"the driver is being created: {why}")
    runs.driver_runs("a", phase="reading")
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a") == ("Running", "Running", "reading")


async def test_a_job_with_another_owner_and_the_drivers_name_is_left_unchanged(runs: MaintenanceWorld) -> None:
    runs.api.put({"kind": "Job", "metadata": {"name": "a-driver", "labels": {}}, "spec": {}})
    runs.apply("a")
    await runs.poll()
    assert runs.said("a") == (
        "Pending",
        "ResourceConflict",
        "Job a-driver already exists and has another owner; delete the object, or rename the MaintenanceJob",
    )
    assert "ownerReferences" not in (runs.job("a") or {})["metadata"]


async def test_a_run_that_was_replaced_meanwhile_is_neither_resumed_nor_marked(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a")

    def replaces(method: str, path: str, _body: object) -> None:
        if method == "POST" and path.endswith("/jobs"):
            body = runs.api.found(KIND, "a") or {}
            runs.api.put({**body, "metadata": {**body["metadata"], "uid": "another"}})

    runs.api.refuse = replaces
    await runs.poll()
    assert (runs.job("a") or {})["spec"]["suspend"] is True
    assert marks(runs, "a") is None


async def test_a_job_that_the_api_server_calls_invalid_fails_the_run(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    invalid = KubeRefused(422, "Invalid", 'spec.template.spec.volumes[1].name: Duplicate value: "tmp"')
    runs.api.refuse = lambda method, path, _: invalid if method == "POST" and path.endswith("/jobs") else None
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "InvalidOptions")
    assert 'Duplicate value: "tmp"' in runs.said("a")[2]
    runs.api.refuse = lambda *_: None
    await runs.poll()
    assert runs.job("a") is None


async def test_a_template_with_an_unknown_field_fails_the_run(
    runs: MaintenanceWorld,
) -> None:
    """The API server would drop the field, and the pods could run on any node."""
    jobs = "POST /apis/batch/v1/namespaces/air/jobs"
    for name, template in (("a", None), ("b", {"pod": {"spec": {"affinity": {"nodeAfinity": {}}}}})):
        runs.apply(name, options={**ARCHIVE, "topic": name, "archive": f"/archive/{name}"}, template=template or {})
    unknown = KubeRefused(400, "BadRequest", 'strict decoding error: unknown field "spec.template.spec.affinity.x"')

    def refuse(method: str, path: str, body: Json) -> KubeRefused | None:
        is_dry_run = runs.api.writes[-1:] == [f"{jobs}?dryRun"]
        return unknown if is_dry_run and body["metadata"]["name"] == "b-driver" else None

    runs.api.refuse = refuse
    await runs.poll()
    assert runs.said("a")[0] == "Running"
    assert runs.said("b")[:2] == ("Failed", "InvalidOptions")
    assert 'unknown field "spec.template.spec.affinity.x"' in runs.said("b")[2]
    assert runs.job("b") is None
    assert [each for each in runs.api.writes if each.startswith(jobs)] == [jobs, f"{jobs}?dryRun"]


async def test_a_running_run_loses_its_finalizer_when_its_cluster_is_deleted(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    assert (runs.api.found(KIND, "a") or {})["metadata"]["finalizers"] == [FINALIZER]
    await runs.worker.release(runs.bodies())
    assert not (runs.api.found(KIND, "a") or {})["metadata"]["finalizers"]
    await runs.worker.poll()
    assert not (runs.api.found(KIND, "a") or {})["metadata"]["finalizers"]
