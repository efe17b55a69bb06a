"""Runs by Kubeflow's Spark operator, on a real API server that has its types.

The test does the work of that operator: it writes the status of a SparkApplication and makes the driver's pod.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from barnabas_operator.manifests.kube_object import ClientAccess
from barnabas_operator.manifests.maintenance_run import spark_application
from barnabas_operator.planning.maintenance.observed_run import SPARK_DRIVER
from barnabas_operator.planning.object_names import run_labels
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from e2e.maintenance.kubeflow_definition import spark_application_definition
from e2e.maintenance.runs import ARCHIVE, RUN, VOLUMES, await_phase, driver_ends, said
from e2e.world import World, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.require import missing
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY

pytestmark = pytest.mark.slow
DEFINITION: Final = "sparkapplications.sparkoperator.k8s.io"
KIND: Final = "SparkApplication"
EVERYTHING: Final = {
    "executors": 2,
    "volumes": VOLUMES,
    "eventLogs": {"claimName": "history"},
    "env": [{"name": "A", "value": "b"}, {"name": "KEY", "secretKeyRef": {"name": "s3", "key": "secret"}}],
    "sparkConf": {"spark.x": "y"},
    "driver": {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "2Gi"}}},
    "template": {"pod": {"spec": {"nodeSelector": {"disk": "local"}, "tolerations": [{"operator": "Exists"}]}}},
    "backoffLimit": 2,
}


@pytest.fixture(scope="module")
def kubeflow(controllers: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the definition of SparkApplications, which is deleted after the module's tests."""
    try:
        definition = spark_application_definition()
    except subprocess.CalledProcessError as error:
        missing(error)
    controllers.kubectl("apply", "--server-side", "-f", str(definition))
    wait_for(lambda: controllers.kubectl.ask("get", "sparkapplications").returncode, lambda code: not code, PATIENCE_S)
    yield controllers
    controllers.kubectl("delete", "crd", DEFINITION, PATIENTLY)


@pytest.fixture(scope="module")
def world(kubeflow: ControlPlane, broker: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world_of_one(kubeflow, f"kubeflow-{os.getpid()}", broker, tmp_path_factory.mktemp("kubeflow")) as found:
        operator = found.operator(RUN_POLL_SECONDS="0.5")
        try:
            yield found
        finally:
            operator.close()


def run(world: World, name: str, **spec: object) -> dict[str, Any]:
    meta = {"name": name, "namespace": world.namespace}
    whole = {
        "cluster": "one",
        "job": "archive",
        "options": {**ARCHIVE, "topic": name},
        "backend": "Kubeflow",
        "volumes": VOLUMES,
        **spec,
    }
    return {"apiVersion": "barnabas.dev/v1alpha1", "kind": RUN, "metadata": meta, "spec": whole}


def await_application(world: World, name: str) -> Json:
    """Wait until the application is no longer suspended, and return it."""
    found = wait_for(
        lambda: world.plane.requests.get(KIND, world.namespace, name),
        lambda found: found is not None and found["spec"].get("suspend") is False,
        PATIENCE_S,
    )
    assert found is not None
    return found


def state(world: World, name: str, word: str, **status: object) -> None:
    told = {"applicationState": {"state": word}, "driverInfo": {"podName": f"{name}-driver"}, "executionAttempts": 1}
    world.plane.requests.merge_status(KIND, world.namespace, name, {**told, **status})


def driver(world: World, name: str) -> None:
    """Make the driver's pod as Spark does, with the SparkApplication as its owner."""
    owner = world.plane.requests.get(KIND, world.namespace, name) or {}
    meta = {
        "name": f"{name}-driver",
        "namespace": world.namespace,
        "labels": dict(run_labels("one", name, "driver")),
        "ownerReferences": [
            {"apiVersion": owner["apiVersion"], "kind": KIND, "name": name, "uid": owner["metadata"]["uid"]}
        ],
    }
    containers = [{"name": SPARK_DRIVER, "image": "x"}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}
    world.kubectl("apply", "-f-", stdin=json.dumps(pod))


@pytest.mark.parametrize("spec", [{}, EVERYTHING, {"backoffLimit": 0}], ids=["defaults", "everything", "once"])
def test_kubeflows_schema_has_every_field_of_our_spark_applications(world: World, spec: dict[str, Any]) -> None:
    body = run(world, "strict", **spec)
    declared = resource_of(MaintenanceJob, {**body, "metadata": {**body["metadata"], "uid": "u"}})
    made = json.dumps(spark_application(declared, "one", ClientAccess("broker:9091"), "jobs:dev"))
    world.kubectl("create", "--dry-run=server", "--validate=strict", "-f-", stdin=made)
    wrong = made.replace('"sparkVersion"', '"sparkVersoin"')
    with pytest.raises(AssertionError, match="unknown field"):
        world.kubectl("create", "--dry-run=server", "--validate=strict", "-f-", stdin=wrong)


def test_a_run_reports_the_progress_and_the_result_of_its_spark_application(world: World) -> None:
    world.plane.requests.apply(run(world, "good", **EVERYTHING))
    found = await_application(world, "good")
    assert found["spec"]["driver"]["template"]["spec"]["containers"][0]["name"] == "spark-kubernetes-driver"
    assert world.plane.requests.get("Job", world.namespace, "good-driver") is None
    state(world, "good", "RUNNING")
    driver(world, "good")
    progress = {"phase": "reading", "records": {"done": 43, "total": 100}}
    world.kubectl("annotate", "pod", "good-driver", f"barnabas.dev/progress={json.dumps(progress)}")
    wait_for(
        lambda: (world.plane.requests.get(RUN, world.namespace, "good") or {})["status"],
        lambda status: status.get("progress") == "43%",
        PATIENCE_S,
    )
    driver_ends(world, "good-driver", 0, SPARK_DRIVER, message="archived 100 records", result={"records": 100})
    state(world, "good", "COMPLETED", terminationTime="2026-01-01T00:01:40Z")
    status = await_phase(world, "good", "Succeeded")
    assert said(status) == ("Succeeded", "archived 100 records")
    assert status["result"] == {"records": 100}
    world.kubectl("delete", "bm", "good", PATIENTLY)
    gone = wait_for(
        lambda: world.plane.requests.get(KIND, world.namespace, "good"), lambda found: found is None, PATIENCE_S
    )
    assert gone is None
