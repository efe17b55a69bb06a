"""Runs beside other runs: no two work on one topic at once, and none blocks all the others."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.reconcile.maintenance.run_poller import AT_ONCE_MAX, RIGHTS_EVERY_S
from barnabas_operator.reconcile.worker_environment import FINALIZER
from barnabas_operator.resources.kind import JsonObject
from harness.kube_memory import KubeMemory
from harness.maintenance_world import ARCHIVE, KIND, MaintenanceWorld

OTHER = {**ARCHIVE, "topic": "orders", "archive": "/archive/orders"}
YEARS_S = 1e8
"""More seconds than have passed since any run has ended."""
LATER = "2026-01-01T00:00:01Z"


def is_held(world: MaintenanceWorld, name: str) -> bool:
    body = world.api.found(KIND, name)
    return body is not None and FINALIZER in body["metadata"]["finalizers"]


async def test_a_run_that_is_deleted_while_a_pod_is_created_is_removed_after_that_pod(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    await runs.poll()
    runs.delete("a")

    def made_just_before(method: str, path: str, _body: object) -> None:
        if method == "DELETE" and path.endswith("/jobs/a-driver"):
            runs.executor_runs("a")  # Kubernetes has created a pod since the last request.

    runs.api.refuse = made_just_before
    await runs.poll()
    await runs.poll()
    assert is_held(runs, "a")
    runs.pods_go("a")
    await runs.poll()
    assert runs.api.found(KIND, "a") is None


async def test_a_run_waits_until_the_executors_of_a_failed_run_have_ended(runs: MaintenanceWorld) -> None:
    runs.apply("a", executors=1)
    runs.apply("b", made=LATER)
    await runs.poll()
    runs.executor_runs("a")
    runs.driver_ends("a", 137)
    await runs.poll()
    await runs.poll()
    assert runs.said("a")[0] == "Failed"
    assert runs.said("b")[:2] == ("Pending", "OtherRunUnderWay")
    assert is_held(runs, "a"), "it may be deleted, and its executors still write"
    runs.pods_go("a")
    await runs.poll()
    assert not is_held(runs, "a")
    assert runs.said("b")[0] == "Running"


@pytest.mark.parametrize("is_under_way", [True, False], ids=["its Job", "when it has ended"])
async def test_a_run_that_cannot_be_deleted_does_not_prevent_others_from_starting(
    is_under_way: bool, runs: MaintenanceWorld
) -> None:
    runs.apply("a", ttlSecondsAfterFinished=0)
    await runs.poll()
    if is_under_way:
        runs.delete("a")
    else:
        runs.driver_ends("a", 0)
        await runs.poll()
    runs.apply("b", options=OTHER)
    runs.clock.pass_time(YEARS_S)
    refused = KubeRefused(403, "Forbidden", "a policy says no")
    runs.api.refuse = lambda method, *_: refused if method == "DELETE" else None
    await runs.poll()
    assert runs.said("b")[0] == "Running"
    if is_under_way:
        assert runs.said("a")[1:] == ("KubernetesError", "a policy says no")


async def test_a_run_with_an_internal_error_does_not_prevent_others_from_starting(runs: MaintenanceWorld) -> None:
    def fails(method: str, _path: str, body: Mapping[str, Any]) -> Exception | None:
        is_job_of_a = method == "POST" and body.get("kind") == "Job" and body["metadata"]["name"] == "a-driver"
        return ValueError("a mistake of the operator") if is_job_of_a else None

    runs.api.refuse = fails
    runs.apply("a")
    runs.apply("b", options=OTHER)
    await runs.poll()
    assert runs.said("b")[0] == "Running"
    assert runs.said("a")[:2] == ("Pending", "InternalError")


NO_ROOM = "0/3 nodes are available: 3 Insufficient memory."
PULL = {"reason": "ErrImagePull", "message": "no such image"}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Pending", "conditions": [{"reason": "Unschedulable", "message": NO_ROOM}]}, NO_ROOM),
        (
            {"phase": "Pending", "containerStatuses": [{"name": "executor", "state": {"waiting": PULL}}]},
            "ErrImagePull: no such image",
        ),
    ],
)
async def test_the_status_reports_why_the_executors_of_a_waiting_driver_do_not_run(
    status: JsonObject, why: str, runs: MaintenanceWorld
) -> None:
    runs.apply("a", executors=1)
    await runs.poll()
    runs.driver_runs("a", phase="starting")
    runs.executor_is("a", status)
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a")[2] == f"starting; executor a-exec-1: {why}"
    runs.executor_runs("a")
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a")[2] == "starting"


async def test_a_run_started_by_a_newer_operator_continues_despite_an_unknown_field(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a")
    await runs.poll()
    body = runs.api.found(KIND, "a") or {}
    runs.api.put({**body, "spec": {**body["spec"], "fieldOfTomorrow": 1}})
    runs.restart()
    runs.apply("b", made=LATER)
    await runs.poll()
    assert runs.said("b")[:2] == ("Pending", "OtherRunUnderWay")
    runs.driver_ends("a", 0, message="done")
    for _ in range(2):
        await runs.poll()
        assert runs.said("a")[:2] == ("Succeeded", "Succeeded")
    assert runs.said("b")[0] == "Running"


async def test_a_deleted_service_account_is_created_again_for_a_retried_driver(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a")
    await runs.poll()
    runs.driver_runs("a")
    await runs.poll()
    del runs.api.objects["/api/v1/namespaces/air/serviceaccounts/one-maintenance"]
    runs.pods_go("a")  # Its node is lost, and Kubernetes can create no other pod without the account.
    runs.clock.pass_time(RIGHTS_EVERY_S)
    await runs.poll()
    assert runs.api.found("ServiceAccount", "one-maintenance") is not None


async def test_the_service_account_of_many_starting_runs_is_applied_once(runs: MaintenanceWorld) -> None:
    for number in range(50):
        runs.apply(f"a-{number}", options={"topic": f"t-{number}", "archive": f"/archive/{number}"})
    await runs.poll()
    applied = [each for each in runs.api.writes if each.endswith("/serviceaccounts/one-maintenance")]
    assert len(applied) == 1


class CountingKube(KubeMemory):
    """An API server in which each request takes a while."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.under_way = self.most_under_way = 0

    async def request(self, method: str, path: str, **given: Any) -> JsonObject:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().request(method, path, **given)
        finally:
            self.under_way -= 1


async def test_many_runs_start_a_few_at_a_time_and_a_failed_look_leaves_no_open_request(
    connection: ApiClient,
) -> None:
    api = CountingKube(connection)
    world = MaintenanceWorld(api)
    for number in range(100):
        world.apply(f"a-{number}", options={"topic": f"t-{number}", "archive": f"/archive/{number}"})
    api.refuse = lambda _, path, __: KubeUnreachable("away") if path.endswith("/jobs/a-0-driver") else None
    with pytest.raises(KubeUnreachable):
        await world.poll()
    assert not api.under_way
    assert api.most_under_way <= AT_ONCE_MAX
    assert sum(each["spec"]["suspend"] is False for each in api.of_kind("Job")) == 99


async def test_an_unreadable_report_and_pods_of_other_owners_are_ignored(runs: MaintenanceWorld) -> None:
    runs.apply("a")
    runs.apply("b", options=OTHER)
    await runs.poll()
    runs.driver_runs("a", phase="reads")
    pod = runs.api.found("Pod", "a-driver-x1") or {}
    meta = {**pod["metadata"], "annotations": {"barnabas.dev/progress": '{"x":' + "[" * 3_000}}
    runs.api.put({**pod, "metadata": meta})
    forged = {**meta, "name": "a-driver-y", "ownerReferences": []}
    runs.api.put({**pod, "metadata": forged})
    runs.driver_ends("b", 0)
    await runs.poll()
    assert runs.said("a")[2] == "driver a-driver-x1 starts"
    assert runs.said("b")[0] == "Succeeded"
    runs.delete("a")
    await runs.poll()
    await runs.poll()
    assert runs.said("a")[2] == "waiting for the pods of the run to end; pods that still run: 1"
