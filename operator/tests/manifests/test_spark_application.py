"""A run as a SparkApplication for Kubeflow's Spark operator."""

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_operator.manifests.maintenance_run import SPARK_VERSION, driver_job, run_client, spark_application
from barnabas_operator.planning.maintenance.run_checks import spark_conf
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE, CLUSTER, KIND
from harness.worker_world import resource

ROOT: Final = Path(__file__).parents[3]
SECRET = {"name": "S3_KEY", "secretKeyRef": {"name": "s3", "key": "secret"}}
VOLUME = {"name": "archive", "mountPath": "/archive", "claimName": "archives"}


def run_of(**spec: Any) -> MaintenanceJob:
    body = resource(KIND, "a", **{"job": "archive", "options": ARCHIVE, "backend": "Kubeflow", **spec})
    return resource_of(MaintenanceJob, {**body, "metadata": {**body["metadata"], "uid": "u"}})


def application(**spec: Any) -> dict[str, Any]:
    return spark_application(run_of(**spec), "one", run_client(run_of(), CLUSTER), "jobs:dev")


def driver_container(**spec: Any) -> dict[str, Any]:
    (container,) = application(**spec)["spec"]["driver"]["template"]["spec"]["containers"]
    return dict(container)


def test_the_driver_of_an_application_gets_the_arguments_of_a_jobs_driver() -> None:
    given = {"executors": 2, "volumes": [VOLUME], "sparkConf": {"spark.x": "$(HOME)"}, "env": [SECRET]}
    job = driver_job(run_of(**given), "one", run_client(run_of(), CLUSTER), "jobs:dev")
    (of_job,) = job["spec"]["template"]["spec"]["containers"]
    found = application(**given)["spec"]
    assert ["barnabas", "jobs", *found["arguments"]] == of_job["command"]
    assert (found["type"], found["mode"], found["image"], found["suspend"]) == ("Python", "cluster", "jobs:dev", True)


def test_the_driver_has_the_mounts_and_variables_of_a_job_without_kubeflows_webhook() -> None:
    given = {"volumes": [VOLUME], "env": [SECRET], "eventLogs": {"claimName": "history"}}
    job = driver_job(run_of(**given), "one", run_client(run_of(), CLUSTER), "jobs:dev")
    of_job = job["spec"]["template"]["spec"]
    driver = application(**given)["spec"]["driver"]
    pod, container = driver["template"]["spec"], driver_container(**given)
    assert pod["volumes"] == of_job["volumes"]
    assert pod["securityContext"] == of_job["securityContext"]
    for field in ("env", "volumeMounts", "securityContext"):
        assert container[field] == of_job["containers"][0][field]
    assert (driver["podName"], driver["serviceAccount"]) == ("a-driver", "one-maintenance")


def test_driver_and_executors_follow_the_template_as_those_of_a_job_do() -> None:
    given = {"executors": 1, "template": {"pod": {"spec": {"nodeSelector": {"disk": "local"}}}}}
    job = driver_job(run_of(**given), "one", run_client(run_of(), CLUSTER), "jobs:dev")
    of_job, pod = job["spec"]["template"], application(**given)["spec"]["driver"]["template"]
    assert pod["metadata"]["annotations"] == of_job["metadata"]["annotations"]
    assert pod["spec"]["volumes"] == of_job["spec"]["volumes"]
    assert pod["spec"]["nodeSelector"] == {"disk": "local"}


def test_the_drivers_container_has_kubeflows_name_and_no_field_that_spark_sets() -> None:
    container = driver_container()
    assert container["name"] == "spark-kubernetes-driver"
    assert not {"command", "args", "ports", "resources"} & container.keys()


def test_pods_have_the_labels_of_their_run_and_executors_that_of_their_application() -> None:
    found = application(executors=1)
    labels = found["spec"]["driver"]["labels"]
    assert labels["barnabas.dev/maintenance-job"] == "a"
    assert labels["barnabas.dev/maintenance-role"] == "driver"
    assert "barnabas.dev/cluster" not in {**labels, **found["metadata"]["labels"]}
    conf = spark_conf(run_of(executors=1), "one", "jobs:dev")
    assert conf["spark.kubernetes.executor.label.sparkoperator.k8s.io/app-name"] == found["metadata"]["name"] == "a"
    assert found["metadata"]["ownerReferences"][0]["uid"] == "u"


def test_memory_and_cores_are_the_declared_ones() -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "2Gi"}, "limits": {"cpu": 3, "memory": "4Gi"}}
    spec = application(executors=3, driver={"resources": resources}, executor={"resources": resources})["spec"]
    size = {"cores": 3, "coreRequest": "1500m", "coreLimit": "3", "memory": "2457m", "memoryOverhead": "1639m"}
    assert spec["driver"].items() >= size.items()
    assert spec["executor"] == {"instances": 3, **size}
    assert "instances" not in application()["spec"]["executor"]


@pytest.mark.parametrize(("tries", "kind"), [(0, "Never"), (5, "OnFailure")])
def test_an_application_is_retried_as_often_as_declared(tries: int, kind: str) -> None:
    policy = application(backoffLimit=tries)["spec"]["restartPolicy"]
    assert policy["type"] == kind
    assert policy.get("onFailureRetries", 0) == policy.get("onSubmissionFailureRetries", 0) == tries


def test_applications_name_the_spark_version_of_the_image() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert f"pyspark=={SPARK_VERSION}" in declared["spark"]
