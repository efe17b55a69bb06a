"""Runs whose backend is Kubeflow's Spark operator. What that does with a SparkApplication is told by the test."""

import json
from typing import Any, Final

import pytest

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.object_names import run_labels
from barnabas_operator.resources.json_types import JsonObject
from harness.maintenance_world import KIND, MaintenanceWorld, play_maintenance

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
    await world.look()


def state(world: MaintenanceWorld, name: str, attempts: int = 1, error: str = "") -> None:
    """As Kubeflow's operator writes it."""
    told = {"state": name, **({"errorMessage": error} if error else {})}
    ended = AT if name in ("COMPLETED", "FAILED") else None
    status = {"applicationState": told, "driverInfo": {}, "executionAttempts": attempts, "terminationTime": ended}
    world.api.put({**(application(world) or {}), "status": status})


def driver(world: MaintenanceWorld, exit_code: int | None = None, **said: Any) -> None:
    """The pod that Spark made; without an exit code it runs, and has told its progress."""
    told = {"barnabas.dev/progress": json.dumps(said)} if exit_code is None else {}
    meta = {"name": "a-driver", "labels": dict(run_labels("one", "a", "driver")), "annotations": told}
    ended = {"terminated": {"exitCode": exit_code, "message": json.dumps({"exit": exit_code, **said})}}
    phase = "Running" if exit_code is None else ("Failed" if exit_code else "Succeeded")
    container = {"name": "spark-kubernetes-driver", "state": ended if exit_code is not None else {"running": {}}}
    world.api.put(
        {"kind": "Pod", "metadata": meta, "spec": {}, "status": {"phase": phase, "containerStatuses": [container]}}
    )


def test_a_run_is_a_spark_application_that_is_let_go_once_the_run_is_marked() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        assert world.job("a") is None
        assert (application(world) or {})["spec"]["suspend"] is False
        marked = (world.api.found(KIND, "a") or {})["metadata"]["annotations"]["barnabas.dev/run"]
        assert marked == "a Started"
        left_out = "dryRun", "/status", "/events"
        writes = [each for each in world.api.writes if not any(word in each for word in left_out)]
        made = writes.index(f"POST {PATH[:-2]}")
        assert writes[made + 1 :] == [f"PATCH {MARKED}", f"PATCH {PATH}"]
        assert world.api.found("Service", "a-driver") is not None

    play_maintenance(scenario)


def test_its_driver_tells_its_progress_and_its_result() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        world.clock.pass_time(10.0)
        await world.look()
        waits = "the driver is being created: Kubeflow's Spark operator has not picked up the SparkApplication"
        assert world.said("a")[2].startswith(waits)
        state(world, "RUNNING")
        driver(world, phase="archiving", records={"done": 43, "total": 100})
        world.clock.pass_time(10.0)
        await world.look()
        assert world.said("a") == ("Running", "Running", "archiving")
        assert (world.status("a")["progress"], world.status("a")["attempts"]) == ("43%", 1)
        state(world, "SUCCEEDING")
        driver(world, 0, message="archived", result={"records": 100}, ledger="/archive/ledger")
        world.clock.pass_time(10.0)
        await world.look()
        assert world.said("a")[0] == "Running"
        state(world, "COMPLETED")
        await world.look()
        assert world.said("a") == ("Succeeded", "Succeeded", "archived")
        assert world.status("a")["result"] == {"records": 100}
        assert world.status("a")["completionTime"] == AT
        assert not await world.look()
        assert application(world) is not None, "it stays, as a Job would"
        assert FINALIZER not in (world.api.found(KIND, "a") or {})["metadata"].get("finalizers", ())

    play_maintenance(scenario)


@pytest.mark.parametrize(("code", "reason"), [(2, "InvalidOptions"), (3, "FoundSomething")])
def test_an_exit_code_that_is_final_ends_it_though_kubeflow_would_try_again(code: int, reason: str) -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        state(world, "FAILING")
        driver(world, code, message="flights-0 differs")
        await world.look()
        assert world.said("a") == ("Failed", reason, "flights-0 differs")
        assert application(world) is not None, "the status comes first: it says how the run ended"
        world.restart()
        await world.look()
        assert application(world) is None
        await world.look()
        assert world.said("a") == ("Failed", reason, "flights-0 differs")

    play_maintenance(scenario)


def test_a_killed_driver_is_tried_again_and_the_last_failure_is_told() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        state(world, "FAILING")
        driver(world, 137)
        await world.look()
        assert world.said("a")[0] == "Running"
        assert "(exit 137), so another driver is started" in world.said("a")[2]
        world.pods_go("a")
        state(world, "SUBMISSION_FAILED", 2, "no room in the quota")
        world.clock.pass_time(10.0)
        await world.look()
        waits = "the driver is being created: the SparkApplication is SUBMISSION_FAILED: no room in the quota"
        assert world.said("a") == ("Running", "Running", waits)
        assert world.status("a")["attempts"] == 2
        state(world, "FAILED", 4)
        driver(world, 1, message="the disk is full")
        await world.look()
        assert world.said("a") == ("Failed", "JobFailed", "the disk is full")

    play_maintenance(scenario)


def test_an_application_that_could_not_be_submitted_tells_why() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        state(world, "FAILED", error="failed to run spark-submit: forbidden")
        await world.look()
        said = "SparkApplicationFailed: failed to run spark-submit: forbidden"
        assert world.said("a") == ("Failed", "JobFailed", said)

    play_maintenance(scenario)


def test_a_deadline_counts_all_tries_and_the_next_run_waits_until_its_pods_are_gone() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world, activeDeadlineSeconds=60)
        state(world, "RUNNING", 2)
        driver(world, phase="archiving")
        world.clock.pass_time(59)
        await world.look()
        assert world.said("a")[0] == "Running"
        world.clock.pass_time(1)
        world.apply("b", made="2026-01-01T00:00:01Z")
        await world.look()
        assert world.said("a")[:2] == ("Failed", "DeadlineExceeded")
        assert "60 seconds" in world.said("a")[2]
        await world.look()
        assert application(world) is None
        assert world.said("b")[1] == "OtherRunUnderWay"
        world.pods_go("a")
        await world.look()
        await world.look()
        assert world.said("b")[0] == "Running"

    play_maintenance(scenario)


def test_without_kubeflows_definition_it_waits_and_says_what_to_install() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", backend="Kubeflow")
        await world.look()
        phase, reason, message = world.said("a")
        assert (phase, reason) == ("Pending", "SparkOperatorNotFound")
        assert message.endswith("install Kubeflow's Spark operator, or set backend to Kubernetes")
        installed(world)
        await world.look()
        assert world.said("a")[0] == "Running"

    play_maintenance(scenario)


def test_one_that_cannot_begin_holds_up_no_other_on_its_topic_and_begins_when_it_can() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.apply("a", backend="Kubeflow")
        world.apply("b", made="2026-01-01T00:00:01Z")
        await world.look()
        await world.look()
        assert world.said("b")[0] == "Running"
        await world.look()
        assert world.said("a")[:2] == ("Pending", "OtherRunUnderWay")
        installed(world)
        await world.look()
        assert application(world) is None, "b is under way"
        world.driver_ends("b", 0)
        await world.look()
        await world.look()
        assert (world.said("b")[0], world.said("a")[0]) == ("Succeeded", "Running")

    play_maintenance(scenario)


def test_where_nobody_may_list_spark_applications_runs_of_jobs_go_on_and_the_others_say_so() -> None:
    """For example with a role that is older than the operator: nobody can tell whether such a run is under way."""

    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        world.apply("b", job="skew", options={"report": "/archive/b"})
        world.apply("c", backend="Kubeflow", job="skew", options={"report": "/archive/c"})
        world.apply("d", backend="Kubeflow", job="verify")
        await world.look()
        state(world, "COMPLETED")
        world.driver_runs("b")
        world.driver_ends("b", 0, message="done")
        forbidden = KubeRefused(403, "Forbidden", "sparkapplications is forbidden")
        world.api.refuse = lambda _, path, __: forbidden if "sparkapplications" in path else None
        world.apply("e", backend="Kubeflow", job="skew", options={"report": "/archive/e"})
        world.delete("d")
        await world.look()
        assert world.said("b")[0] == "Succeeded"
        why = "the SparkApplications could not be listed: sparkapplications is forbidden"
        assert world.said("a") == ("Running", "KubernetesError", why), "it is neither lost nor run again"
        assert world.said("e") == ("Pending", "KubernetesError", why)
        assert world.said("d")[1] == "KubernetesError", "it may still have pods"
        world.api.refuse = lambda *_: None
        await world.look()
        assert (world.said("a")[0], world.said("c")[0], world.said("e")[0]) == ("Succeeded", "Running", "Running")

    play_maintenance(scenario)


def test_a_definition_that_lacks_a_field_ends_it_before_anything_is_made() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        unknown = KubeRefused(400, "BadRequest", 'strict decoding error: unknown field "spec.suspend"')
        world.api.refuse = lambda method, path, _: unknown if method == "POST" and path.startswith(GROUP) else None
        await begun(world)
        assert world.said("a")[:2] == ("Failed", "InvalidOptions")
        assert 'unknown field "spec.suspend"' in world.said("a")[2]
        assert world.api.found("Service", "a-driver") is None

    play_maintenance(scenario)


def test_one_that_is_deleted_goes_when_its_application_and_its_pods_are_gone() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        state(world, "RUNNING")
        driver(world, phase="archiving")
        world.delete("a")
        await world.look()
        assert application(world) is None
        assert world.said("a")[1:] == ("Deleting", "waiting for the pods of the run to end; pods that still run: 1")
        world.pods_go("a")
        await world.look()
        assert world.api.found(KIND, "a") is None

    play_maintenance(scenario)


def test_one_whose_application_was_deleted_is_lost_and_not_run_again() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        del world.api.objects[PATH]
        world.restart()
        await world.look()
        assert world.said("a")[:2] == ("Failed", "RunLost")
        await world.look()
        assert application(world) is None

    play_maintenance(scenario)


def test_an_application_of_that_name_that_is_somebody_elses_is_left_alone() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        world.api.put({"kind": "SparkApplication", "metadata": {"name": "a", "labels": {}}, "spec": {}})
        await begun(world)
        said = (
            "SparkApplication a already exists and has another owner; delete the object, or rename the MaintenanceJob"
        )
        assert world.said("a") == ("Pending", "ResourceConflict", said)
        assert "ownerReferences" not in (application(world) or {})["metadata"]

    play_maintenance(scenario)


def test_runs_of_both_backends_take_turns() -> None:
    async def scenario(world: MaintenanceWorld) -> None:
        await begun(world)
        world.apply("b", made="2026-01-01T00:00:01Z")
        await world.look()
        assert world.said("b")[1] == "OtherRunUnderWay"
        assert world.job("b") is None

    play_maintenance(scenario)
