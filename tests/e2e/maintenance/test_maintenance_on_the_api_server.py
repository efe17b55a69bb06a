"""The operator on a real API server with Kubernetes' Job controller; the test itself reports the state of pods."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas_operator.resources.kind import Json
from e2e.maintenance.runs import ARCHIVE, RUN, VOLUMES, await_phase, driver_ends, said, status
from e2e.world import World, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY


@pytest.fixture(scope="module")
def world(
    controllers: ControlPlane, broker: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder: Path = tmp_path_factory.mktemp("maintenance")
    with world_of_one(controllers, f"maintenance-{os.getpid()}", broker, folder) as found:
        operator = found.operator(RUN_POLL_SECONDS="0.5")
        try:
            yield found
        finally:
            operator.close()


def apply(world: World, name: str, **spec: object) -> None:
    meta = {"name": name, "namespace": world.namespace}
    whole = {"cluster": "one", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES, **spec}
    world.plane.requests.apply({"apiVersion": "barnabas.dev/v1alpha1", "kind": RUN, "metadata": meta, "spec": whole})


def drivers(world: World, name: str) -> list[Any]:
    return world.plane.requests.listing("Pod", world.namespace, {"barnabas.dev/maintenance-job": name})


def await_driver(world: World, name: str) -> str:
    return str(wait_for(lambda: drivers(world, name), lambda found: len(found) == 1, PATIENCE_S)[0]["metadata"]["name"])


def test_kubectl_shows_the_progress_and_the_result_of_a_run(world: World) -> None:
    apply(world, "good")
    pod = await_driver(world, "good")
    progress = {"phase": "reading", "stages": {"done": 1, "total": 2}, "records": {"done": 43, "total": 100}}
    world.kubectl("annotate", "pod", pod, f"barnabas.dev/progress={json.dumps(progress)}")
    wait_for(lambda: status(world, "good"), lambda found: found.get("progress") == "43%", PATIENCE_S)
    driver_ends(world, pod, 0, message="archived 100 records", result={"records": 100}, ledger="barnabas.flights")
    found = await_phase(world, "good", "Succeeded")
    assert said(found) == ("Succeeded", "archived 100 records")
    assert found["result"] == {"records": 100}
    head, row = world.kubectl("get", "bm", "good").splitlines()
    assert head.split() == ["NAME", "JOB", "PHASE", "PROGRESS", "RECORDS", "DURATION", "AGE", "MESSAGE"]
    assert row.split()[:5] == ["good", "archive", "Succeeded", "100%", "43"]
    assert row.endswith("archived 100 records")
    wait_for(lambda: {"Running", "Succeeded"} <= {reason for _, reason, _ in world.events(RUN, "good")})
    job = world.plane.requests.get("Job", world.namespace, "good-driver")
    assert job is not None
    assert world.plane.requests.get("Service", world.namespace, "good-driver") is not None


def test_a_template_places_the_pods_and_a_misspelt_field_fails_the_run(world: World) -> None:
    here: Json = {"nodeSelector": {"disk": "local"}, "tolerations": [{"key": "jobs", "operator": "Exists"}]}
    apply(world, "placed", options={**ARCHIVE, "topic": "placed"}, executors=1, template={"pod": {"spec": here}})
    await_driver(world, "placed")
    (pod,) = drivers(world, "placed")
    of_executors = json.loads(pod["metadata"]["annotations"]["barnabas.dev/executor-pod"])
    for spec in (pod["spec"], of_executors["spec"]):
        assert spec["nodeSelector"] == here["nodeSelector"]
        assert here["tolerations"][0] in spec["tolerations"]
    misspelt: Json = {"affinity": {"nodeAfinity": {}}}
    other = {"topic": "misspelt", "archive": "/archive/misspelt"}
    apply(world, "misspelt", options=other, template={"pod": {"spec": misspelt}})
    reason, message = said(await_phase(world, "misspelt", "Failed"))
    assert (reason, 'unknown field "spec.template.spec.affinity.nodeAfinity"' in message) == ("InvalidOptions", True)
    assert world.plane.requests.get("Job", world.namespace, "misspelt-driver") is None
    world.kubectl("delete", "bm", "placed", "misspelt", PATIENTLY)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"job": "archiv"}, "Unsupported value"),
        ({"executors": -1}, "should be greater than or equal to 0"),
        ({"env": [{"name": "A"}]}, "env A needs exactly one of value and secretKeyRef"),
    ],
)
def test_the_api_server_refuses_values_that_the_schema_does_not_allow(world: World, change: Json, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        apply(world, "never", **change)


@pytest.mark.parametrize("name", ["2026-11-22-archive", "a.b", "a" * 57])
def test_a_name_that_is_no_valid_service_name_is_refused(world: World, name: str) -> None:
    with pytest.raises(AssertionError, match="allowed: at most 56 characters, a letter first and without a dot"):
        apply(world, name)


def test_the_spec_of_a_maintenance_job_cannot_change(world: World) -> None:
    apply(world, "fixed", options={**ARCHIVE, "topic": "fixed"})
    apply(world, "fixed", options={**ARCHIVE, "topic": "fixed"})
    with pytest.raises(AssertionError, match="spec cannot change, because a MaintenanceJob runs only once"):
        apply(world, "fixed", options={**ARCHIVE, "topic": "other"})
    world.kubectl("delete", "bm", "fixed", PATIENTLY)


def entry(name: str = "nightly", **fields: object) -> Json:
    return {"name": name, "schedule": "0 3 1 1 *", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES, **fields}


def cron_jobs(world: World) -> list[str]:
    return [each["metadata"]["name"] for each in world.plane.requests.listing("CronJob", world.namespace)]


def cron_job(world: World) -> Json:
    return dict(world.plane.requests.get("CronJob", world.namespace, "one-nightly") or {})


def start(world: World, job: str) -> subprocess.Popen[str]:
    """Run what the pod of a schedule's Job runs."""
    uid = (world.plane.requests.get("Job", world.namespace, job) or {})["metadata"]["uid"]
    told = {
        "KUBECONFIG": str(world.plane.kubeconfig),
        "POD_NAMESPACE": world.namespace,
        "JOB_NAME": job,
        "JOB_UID": uid,
    }
    command = [sys.executable, "-m", "barnabas", "start-maintenance", "one", "nightly"]
    return subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_schedule_becomes_a_cron_job_that_starts_maintenance_jobs_and_waits_for_them(world: World) -> None:
    world.apply_cluster("one", maintenance=[entry(timeZone="Europe/Berlin", successfulJobsHistoryLimit=0)])
    wait_for(lambda: cron_jobs(world), lambda found: found == ["one-nightly"], PATIENCE_S)
    world.kubectl("create", "job", "--from=cronjob/one-nightly", "one-nightly-1")
    (pod,) = wait_for(
        lambda: world.plane.requests.listing("Pod", world.namespace, {"barnabas.dev/schedule": "nightly"}),
        lambda found: len(found) == 1,
        PATIENCE_S,
    )
    paths = [each["valueFrom"]["fieldRef"]["fieldPath"] for each in pod["spec"]["containers"][0]["env"][1:]]
    labels = [path.partition("'")[2].rstrip("']") for path in paths]
    assert pod["metadata"]["labels"][labels[0]] == "one-nightly-1"
    running = start(world, "one-nightly-1")
    try:
        driver_ends(world, await_driver(world, "one-nightly-1"), 0, message="archived 7 records")
        told, _ = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert (running.returncode, told.strip()) == (0, "MaintenanceJob one-nightly-1: Succeeded: archived 7 records")
    driver_ends(world, pod["metadata"]["name"], 0)
    wait_for(lambda: status(world, "one-nightly-1"), lambda found: not found, PATIENCE_S)
    # The CronJob keeps the time of a successful Job that Kubernetes has deleted.
    wait_for(lambda: "lastSuccessfulTime" in cron_job(world).get("status", {}))
    world.apply_cluster("one")
    wait_for(lambda: cron_jobs(world), lambda found: not found, PATIENCE_S)
