"""Runs of maintenance: each is done once, whoever dies and whatever is lost."""

import contextlib
from itertools import count
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.planning.maintenance.run_state import MARK
from barnabas_operator.reconcile.status_writer import FINALIZER
from barnabas_operator.resources.json_types import Json
from harness.maintenance_world import ARCHIVE, KIND, MaintenanceWorld, play_maintenance

WRITES_MAX = 50


def marks(world: MaintenanceWorld, name: str) -> Any:
    return (world.api.found(KIND, name) or {})["metadata"].get("annotations", {}).get(MARK)


def test_a_run_has_a_job_a_service_and_rights_and_ends_with_its_result() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", executors=2)
        assert await world.look()
        job = world.job("a")
        assert job is not None
        assert job["spec"]["suspend"] is False
        assert world.api.found("Service", "a-driver") is not None
        assert world.api.found("RoleBinding", "one-maintenance") is not None
        assert marks(world, "a") == "a Started"
        world.driver_runs("a", phase="reading", records={"done": 43, "total": 100}, stages={"done": 1, "total": None})
        world.clock.pass_time(10.0)
        await world.look()
        assert world.said("a")[:2] == ("Running", "Running")
        status = world.status("a")
        assert (status["progress"], status["records"]["done"], status["activity"]) == ("43%", 43, "reading")
        world.driver_ends("a", 0, message="archived 100 records", result={"records": 100}, ledger="/archive/ledger")
        assert await world.look()
        assert world.said("a") == ("Succeeded", "Succeeded", "archived 100 records")
        status = world.status("a")
        assert status["result"] == {"records": 100}
        assert (status["duration"], status["progress"], status["ledger"]) == ("1m40s", "100%", "/archive/ledger")
        assert not await world.look()
        assert FINALIZER not in (world.api.found(KIND, "a") or {})["metadata"].get("finalizers", ())
        assert [reason for reason, _ in world.api.events()] == ["Running", "Succeeded"]

    play_maintenance(scenario)


async def begun_by_an_operator_that_dies_at(world: MaintenanceWorld, write: int) -> bool:
    """Whether it died at that write, before the API server took it."""
    numbers = count()

    def dies(method: str, _path: str, _body: object) -> Exception | None:
        if method == "GET":
            return None
        return KubeUnreachable("it is dead") if next(numbers) >= write else None

    world.api.refuse = dies
    with contextlib.suppress(KubeUnreachable):
        await world.look()
    world.api.refuse = lambda *_: None
    return next(numbers) > write


@pytest.mark.parametrize("is_job_lost", [False, True])
def test_an_operator_that_dies_at_any_write_is_followed_by_one_that_begins_the_run_once(is_job_lost: bool) -> None:
    died_at: list[int] = []

    async def scenario(world: MaintenanceWorld) -> None:
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
        await world.look()
        if is_job_lost and was_let_go:
            assert world.job("a") is None
            assert world.said("a")[:2] == ("Failed", "RunLost")
        if not is_job_lost:
            assert (world.job("a") or {})["spec"]["suspend"] is False

    while WRITES_MAX not in died_at:
        play_maintenance(scenario)
    assert len(died_at) > 6


def test_a_run_whose_status_was_lost_with_its_job_is_not_run_again() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        world.driver_ends("a", 0, message="done")
        await world.look()
        body = world.api.found(KIND, "a") or {}
        world.api.put({name: value for name, value in body.items() if name != "status"})
        world.driver_is_lost("a")
        world.restart()
        await world.look()
        assert world.job("a") is None
        assert world.said("a")[:2] == ("Succeeded", "Succeeded")
        assert "lost" in world.said("a")[2]

    play_maintenance(scenario)


def test_a_copy_of_a_run_under_another_name_runs() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        world.driver_ends("a", 0, message="done")
        await world.look()
        copied = (world.api.found(KIND, "a") or {})["metadata"]["annotations"]
        world.apply("b")
        body = world.api.found(KIND, "b") or {}
        world.api.put({**body, "metadata": {**body["metadata"], "annotations": copied}})
        await world.look()
        assert world.said("b")[0] == "Running"
        assert world.job("b") is not None

    play_maintenance(scenario)


def test_a_status_that_was_lost_is_made_anew_of_the_job() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        world.driver_ends("a", 3, message="flights-0 differs at offset 7")
        body = world.api.found(KIND, "a") or {}
        world.api.put({name: value for name, value in body.items() if name != "status"})
        world.restart()
        await world.look()
        assert world.said("a") == ("Failed", "FoundSomething", "flights-0 differs at offset 7")

    play_maintenance(scenario)


def test_of_two_runs_of_one_job_on_one_topic_the_later_waits_and_names_the_other() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("second", made="2026-01-01T00:00:01Z", options={**ARCHIVE, "archive": "/archive/other"})
        world.apply("first")
        world.apply("verifies", job="verify")
        await world.look()
        phase, reason, message = world.said("second")
        assert (phase, reason) == ("Pending", "OtherRunUnderWay")
        assert "topic flights is under way in the MaintenanceJob first" in message
        assert world.job("second") is None
        assert world.job("verifies") is not None
        world.driver_ends("first", 0, message="done")
        await world.look()
        await world.look()
        assert world.said("second")[0] == "Running"

    play_maintenance(scenario)


def test_a_run_of_a_paused_cluster_waits_and_one_that_has_begun_goes_on() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        world.apply("b", options={"topic": "orders", "archive": "/archive/orders"})
        await world.look("Cluster one is paused; to end the pause, set spec.pause of the Cluster to false")
        assert world.said("b") == (
            "Pending",
            "ClusterNotReady",
            "Cluster one is paused; to end the pause, set spec.pause of the Cluster to false",
        )
        world.driver_ends("a", 0, message="done")
        await world.look("Cluster one is paused; to end the pause, set spec.pause of the Cluster to false")
        assert world.said("a")[0] == "Succeeded"
        assert world.job("b") is None

    play_maintenance(scenario)


def test_a_run_with_a_wrong_option_never_begins() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", options={"topic": "flights", "archive": "/a", "bootstrap": "x:1", "commit_records": "many"})
        await world.look()
        phase, reason, message = world.said("a")
        assert (phase, reason) == ("Failed", "InvalidOptions")
        assert "spec.options.bootstrap is x:1; remove the option" in message
        assert "spec.options.commit_records is 'many'; allowed: a whole number, 1 or more" in message
        assert world.job("a") is None

    play_maintenance(scenario)


def test_one_that_is_deleted_goes_when_its_pods_have_ended() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        world.driver_runs("a")
        body = world.api.found(KIND, "a") or {}
        world.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:09Z"}})
        world.apply("b")
        await world.look()
        assert world.job("a") is None
        assert world.said("b")[1] == "OtherRunUnderWay"
        assert world.said("a")[1:] == ("Deleting", "waiting for the pods of the run to end; pods that still run: 1")
        world.pods_go("a")
        await world.look()
        assert world.api.found(KIND, "a") is None
        await world.look()
        assert world.said("b")[0] == "Running"

    play_maintenance(scenario)


def test_numbers_are_written_every_ten_seconds_and_news_at_once() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        for done in range(1, 6):
            world.driver_runs("a", phase="reading", records={"done": done, "total": 10})
            world.clock.pass_time(4.0)
            await world.look()
        writes = [each for each in world.api.writes if each.endswith("/maintenancejobs/a/status")]
        assert len(writes) == 3  # It begins; it has a driver; 12 s later it has other numbers.
        world.driver_ends("a", 1, message="the disk is full")
        await world.look()
        assert world.said("a") == ("Failed", "JobFailed", "the disk is full")

    play_maintenance(scenario)


def test_a_total_that_nobody_knows_any_more_is_taken_away() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        for records in ({"done": 5, "total": 10}, {"done": 0, "total": None}):
            await world.look()
            world.driver_runs("a", phase="reading", records=records)
            world.clock.pass_time(10.0)
        await world.look()
        assert world.status("a")["records"] == {"done": 0}
        before = len(world.api.writes)
        await world.look()
        assert len(world.api.writes) == before

    play_maintenance(scenario)


def test_it_is_told_why_kubernetes_makes_no_driver() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        why = 'Error creating: pods "a-driver-" is forbidden: exceeded quota: air'
        uid = (world.job("a") or {})["metadata"]["uid"]
        for about, said in ((uid, why), ("an earlier one", "something else")):
            job = {"kind": "Job", "name": "a-driver", "uid": about}
            meta = {"name": said[:5], "creationTimestamp": "2026-01-01T00:00:00Z"}
            world.api.put({"kind": "Event", "metadata": meta, "involvedObject": job, "message": said})
        world.clock.pass_time(10.0)
        await world.look()
        assert world.said("a") == ("Running", "Running", f"the driver is being created: {why}")
        world.driver_runs("a", phase="reading")
        world.clock.pass_time(10.0)
        await world.look()
        assert world.said("a") == ("Running", "Running", "reading")

    play_maintenance(scenario)


def test_a_job_of_that_name_that_is_somebody_elses_is_left_alone() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.api.put({"kind": "Job", "metadata": {"name": "a-driver", "labels": {}}, "spec": {}})
        world.apply("a")
        await world.look()
        assert world.said("a") == (
            "Pending",
            "ResourceConflict",
            "Job a-driver already exists and has another owner; delete the object, or rename the MaintenanceJob",
        )
        assert "ownerReferences" not in (world.job("a") or {})["metadata"]

    play_maintenance(scenario)


def test_a_run_whose_name_another_one_has_meanwhile_is_not_let_go_and_marks_nobody() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")

        def replaces(method: str, path: str, _body: object) -> None:
            if method == "POST" and path.endswith("/jobs"):
                body = world.api.found(KIND, "a") or {}
                world.api.put({**body, "metadata": {**body["metadata"], "uid": "another"}})

        world.api.refuse = replaces
        await world.look()
        assert (world.job("a") or {})["spec"]["suspend"] is True
        assert marks(world, "a") is None

    play_maintenance(scenario)


def test_what_the_api_server_can_never_take_is_a_fault_of_the_run() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        invalid = KubeRefused(422, "Invalid", 'spec.template.spec.volumes[1].name: Duplicate value: "tmp"')
        world.api.refuse = lambda method, path, _: invalid if method == "POST" and path.endswith("/jobs") else None
        await world.look()
        assert world.said("a")[:2] == ("Failed", "InvalidOptions")
        assert 'Duplicate value: "tmp"' in world.said("a")[2]
        world.api.refuse = lambda *_: None
        await world.look()
        assert world.job("a") is None

    play_maintenance(scenario)


def test_a_template_that_the_api_server_does_not_know_all_of_is_a_fault_of_the_run() -> None:
    """It would drop what it does not know, and the pods would be anywhere."""

    async def scenario(world: MaintenanceWorld) -> None:
        jobs = "POST /apis/batch/v1/namespaces/air/jobs"
        for name, template in (("a", None), ("b", {"pod": {"spec": {"affinity": {"nodeAfinity": {}}}}})):
            world.apply(
                name, options={**ARCHIVE, "topic": name, "archive": f"/archive/{name}"}, template=template or {}
            )
        unknown = KubeRefused(400, "BadRequest", 'strict decoding error: unknown field "spec.template.spec.affinity.x"')

        def refuse(method: str, path: str, body: Json) -> KubeRefused | None:
            is_dry_run = world.api.writes[-1:] == [f"{jobs}?dryRun"]
            return unknown if is_dry_run and body["metadata"]["name"] == "b-driver" else None

        world.api.refuse = refuse
        await world.look()
        assert world.said("a")[0] == "Running"
        assert world.said("b")[:2] == ("Failed", "InvalidOptions")
        assert 'unknown field "spec.template.spec.affinity.x"' in world.said("b")[2]
        assert world.job("b") is None
        assert [each for each in world.api.writes if each.startswith(jobs)] == [jobs, f"{jobs}?dryRun"]

    play_maintenance(scenario)


def test_one_that_is_under_way_when_its_cluster_goes_is_let_go() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a")
        await world.look()
        body = world.api.found(KIND, "a") or {}
        world.api.put({**body, "metadata": {**body["metadata"], "finalizers": []}})
        world.worker.stop()
        await world.worker.look()
        assert not (world.api.found(KIND, "a") or {})["metadata"]["finalizers"]

    play_maintenance(scenario)
