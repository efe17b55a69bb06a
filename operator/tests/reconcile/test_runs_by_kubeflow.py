"""Runs with Kubeflow's Spark operator as their backend; the tests write what that operator would write."""

import json
from typing import Any, Final

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.object_names import run_labels
from barnabas_operator.resources.kind import JsonObject
from harness.maintenance_world import KIND, MaintenanceWorld

GROUP: Final = "/apis/sparkoperator.k8s.io/v1beta2"
PATH: Final = f"{GROUP}/namespaces/air/sparkapplications/a"
MARKED: Final = "/apis/barnabas.dev/v1alpha1/namespaces/air/maintenancejobs/a"
FINALIZER: Final = "barnabas.dev/finalizer"
AT: Final = "2026-01-01T00:01:40Z"


def installed(world: MaintenanceWorld) -> None:
    world.api.objects[GROUP] = {"resources": [{"name": "sparkapplications"}]}


def application(world: MaintenanceWorld) -> JsonObject | None:
    return world.api.found("SparkApplication", "a")


async def begun(world: MaintenanceWorld, **spec: Any) -> None:
    installed(world)
    world.apply("a", backend="Kubeflow", **spec)
    await world.poll()


def state(world: MaintenanceWorld, name: str, attempts: int = 1, error: str = "") -> None:
    """Write the status of the SparkApplication as Kubeflow's operator does."""
    told = {"state": name, **({"errorMessage": error} if error else {})}
    ended = AT if name in ("COMPLETED", "FAILED") else None
    status = {"applicationState": told, "driverInfo": {}, "executionAttempts": attempts, "terminationTime": ended}
    world.api.put({**(application(world) or {}), "status": status})


def driver(world: MaintenanceWorld, exit_code: int | None = None, **said: Any) -> None:
    """Create the driver's pod as Spark does; without an exit code it runs and reports its progress."""
    told = {"barnabas.dev/progress": json.dumps(said)} if exit_code is None else {}
    meta = {"name": "a-driver", "labels": dict(run_labels("one", "a", "driver")), "annotations": told}
    ended = {"terminated": {"exitCode": exit_code, "message": json.dumps({"exit": exit_code, **said})}}
    phase = "Running" if exit_code is None else ("Failed" if exit_code else "Succeeded")
    container = {"name": "spark-kubernetes-driver", "state": ended if exit_code is not None else {"running": {}}}
    world.api.put(
        {"kind": "Pod", "metadata": meta, "spec": {}, "status": {"phase": phase, "containerStatuses": [container]}}
    )


async def test_the_spark_application_of_a_run_is_resumed_only_after_the_run_is_marked(runs: MaintenanceWorld) -> None:
    await begun(runs)
    assert runs.job("a") is None
    assert (application(runs) or {})["spec"]["suspend"] is False
    marked = (runs.api.found(KIND, "a") or {})["metadata"]["annotations"]["barnabas.dev/run"]
    assert marked == "a Started"
    left_out = "dryRun", "/status", "/events"
    writes = [each for each in runs.api.writes if not any(word in each for word in left_out)]
    made = writes.index(f"POST {PATH[:-2]}")
    assert writes[made + 1 :] == [f"PATCH {MARKED}", f"PATCH {PATH}"]
    assert runs.api.found("Service", "a-driver") is not None


async def test_the_status_reports_the_progress_and_the_result_of_the_driver(runs: MaintenanceWorld) -> None:
    await begun(runs)
    runs.clock.pass_time(10.0)
    await runs.poll()
    waits = "the driver is being created: Kubeflow's Spark operator has not picked up the SparkApplication"
    assert runs.said("a")[2].startswith(waits)
    state(runs, "RUNNING")
    driver(runs, phase="archiving", records={"done": 43, "total": 100})
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a") == ("Running", "Running", "archiving")
    assert (runs.status("a")["progress"], runs.status("a")["attempts"]) == ("43%", 1)
    state(runs, "SUCCEEDING")
    driver(runs, 0, message="archived", result={"records": 100}, ledger="barnabas.flights")
    runs.clock.pass_time(10.0)
    await runs.poll()
    assert runs.said("a")[0] == "Running"
    state(runs, "COMPLETED")
    await runs.poll()
    assert runs.said("a") == ("Succeeded", "Succeeded", "archived")
    assert runs.status("a")["result"] == {"records": 100}
    assert runs.status("a")["completionTime"] == AT
    assert not await runs.poll()
    assert application(runs) is not None, "it stays, as a Job would"
    assert FINALIZER not in (runs.api.found(KIND, "a") or {})["metadata"].get("finalizers", ())


@pytest.mark.parametrize(("code", "reason"), [(2, "InvalidOptions"), (3, "FoundSomething")])
async def test_a_final_exit_code_ends_the_run_although_kubeflow_would_retry(
    code: int, reason: str, runs: MaintenanceWorld
) -> None:
    await begun(runs)
    state(runs, "FAILING")
    driver(runs, code, message="flights-0 differs")
    await runs.poll()
    assert runs.said("a") == ("Failed", reason, "flights-0 differs")
    assert application(runs) is not None, "the status comes first: it says how the run ended"
    runs.restart()
    await runs.poll()
    assert application(runs) is None
    await runs.poll()
    assert runs.said("a") == ("Failed", reason, "flights-0 differs")


async def test_a_killed_driver_is_retried_and_the_last_failure_is_reported(runs: MaintenanceWorld) -> None:
    await begun(runs)
    state(runs, "FAILING")
    driver(runs, 137)
    await runs.poll()
    assert runs.said("a")[0] == "Running"
    assert "(exit 137), so another driver is started" in runs.said("a")[2]
    runs.pods_go("a")
    state(runs, "SUBMISSION_FAILED", 2, "no room in the quota")
    runs.clock.pass_time(10.0)
    await runs.poll()
    waits = "the driver is being created: the SparkApplication is SUBMISSION_FAILED: no room in the quota"
    assert runs.said("a") == ("Running", "Running", waits)
    assert runs.status("a")["attempts"] == 2
    state(runs, "FAILED", 4)
    driver(runs, 1, message="the disk is full")
    await runs.poll()
    assert runs.said("a") == ("Failed", "JobFailed", "the disk is full")


async def test_the_status_reports_why_an_application_could_not_be_submitted(runs: MaintenanceWorld) -> None:
    await begun(runs)
    state(runs, "FAILED", error="failed to run spark-submit: forbidden")
    await runs.poll()
    said = "SparkApplicationFailed: failed to run spark-submit: forbidden"
    assert runs.said("a") == ("Failed", "JobFailed", said)


async def test_a_deadline_covers_all_attempts_and_the_next_run_waits_until_pods_have_ended(
    runs: MaintenanceWorld,
) -> None:
    await begun(runs, activeDeadlineSeconds=60)
    state(runs, "RUNNING", 2)
    driver(runs, phase="archiving")
    runs.clock.pass_time(59)
    await runs.poll()
    assert runs.said("a")[0] == "Running"
    runs.clock.pass_time(1)
    runs.apply("b", made="2026-01-01T00:00:01Z")
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "DeadlineExceeded")
    assert "60 seconds" in runs.said("a")[2]
    await runs.poll()
    assert application(runs) is None
    assert runs.said("b")[1] == "OtherRunUnderWay"
    runs.pods_go("a")
    await runs.poll()
    await runs.poll()
    assert runs.said("b")[0] == "Running"


async def test_a_run_without_kubeflows_definition_waits_and_says_what_to_install(runs: MaintenanceWorld) -> None:
    runs.apply("a", backend="Kubeflow")
    await runs.poll()
    phase, reason, message = runs.said("a")
    assert (phase, reason) == ("Pending", "SparkOperatorNotFound")
    assert message.endswith("install Kubeflow's Spark operator, or set backend to Kubernetes")
    installed(runs)
    await runs.poll()
    assert runs.said("a")[0] == "Running"


async def test_a_run_that_cannot_start_holds_up_no_other_on_its_topic_and_starts_later(
    runs: MaintenanceWorld,
) -> None:
    runs.apply("a", backend="Kubeflow")
    runs.apply("b", made="2026-01-01T00:00:01Z")
    await runs.poll()
    await runs.poll()
    assert runs.said("b")[0] == "Running"
    await runs.poll()
    assert runs.said("a")[:2] == ("Pending", "OtherRunUnderWay")
    installed(runs)
    await runs.poll()
    assert application(runs) is None, "b is under way"
    runs.driver_ends("b", 0)
    await runs.poll()
    await runs.poll()
    assert (runs.said("b")[0], runs.said("a")[0]) == ("Succeeded", "Running")


async def test_runs_by_jobs_continue_and_others_report_why_if_applications_cannot_be_listed(
    runs: MaintenanceWorld,
) -> None:
    """For example, the role is older than the operator; then it is unknown whether such a run is in progress."""
    await begun(runs)
    runs.apply("b", job="skew", options={"report": "/archive/b"})
    runs.apply("c", backend="Kubeflow", job="skew", options={"report": "/archive/c"})
    runs.apply("d", backend="Kubeflow", job="verify")
    await runs.poll()
    state(runs, "COMPLETED")
    runs.driver_runs("b")
    runs.driver_ends("b", 0, message="done")
    forbidden = KubeRefused(403, "Forbidden", "sparkapplications is forbidden")
    runs.api.refuse = lambda _, path, __: forbidden if "sparkapplications" in path else None
    runs.apply("e", backend="Kubeflow", job="skew", options={"report": "/archive/e"})
    runs.delete("d")
    await runs.poll()
    assert runs.said("b")[0] == "Succeeded"
    why = "the SparkApplications could not be listed: sparkapplications is forbidden"
    assert runs.said("a") == ("Running", "KubernetesError", why), "it is neither lost nor run again"
    assert runs.said("e") == ("Pending", "KubernetesError", why)
    assert runs.said("d")[1] == "KubernetesError", "it may still have pods"
    runs.api.refuse = lambda *_: None
    await runs.poll()
    assert (runs.said("a")[0], runs.said("c")[0], runs.said("e")[0]) == ("Succeeded", "Running", "Running")


async def test_a_definition_that_lacks_a_field_fails_the_run_before_anything_is_created(runs: MaintenanceWorld) -> None:
    unknown = KubeRefused(400, "BadRequest", 'strict decoding error: unknown field "spec.suspend"')
    runs.api.refuse = lambda method, path, _: unknown if method == "POST" and path.startswith(GROUP) else None
    await begun(runs)
    assert runs.said("a")[:2] == ("Failed", "InvalidOptions")
    assert 'unknown field "spec.suspend"' in runs.said("a")[2]
    assert runs.api.found("Service", "a-driver") is None


async def test_a_deleted_run_is_removed_after_its_application_and_its_pods(runs: MaintenanceWorld) -> None:
    await begun(runs)
    state(runs, "RUNNING")
    driver(runs, phase="archiving")
    runs.delete("a")
    await runs.poll()
    assert application(runs) is None
    assert runs.said("a")[1:] == ("Deleting", "waiting for the pods of the run to end; pods that still run: 1")
    runs.pods_go("a")
    await runs.poll()
    assert runs.api.found(KIND, "a") is None


async def test_a_run_whose_application_was_deleted_is_lost_and_not_run_again(runs: MaintenanceWorld) -> None:
    await begun(runs)
    del runs.api.objects[PATH]
    runs.restart()
    await runs.poll()
    assert runs.said("a")[:2] == ("Failed", "RunLost")
    await runs.poll()
    assert application(runs) is None


async def test_an_application_with_another_owner_and_the_runs_name_is_left_unchanged(runs: MaintenanceWorld) -> None:
    runs.api.put({"kind": "SparkApplication", "metadata": {"name": "a", "labels": {}}, "spec": {}})
    await begun(runs)
    said = "SparkApplication a already exists and has another owner; delete the object, or rename the MaintenanceJob"
    assert runs.said("a") == ("Pending", "ResourceConflict", said)
    assert "ownerReferences" not in (application(runs) or {})["metadata"]


async def test_runs_of_both_backends_take_turns(runs: MaintenanceWorld) -> None:
    await begun(runs)
    runs.apply("b", made="2026-01-01T00:00:01Z")
    await runs.poll()
    assert runs.said("b")[1] == "OtherRunUnderWay"
    assert runs.job("b") is None
