"""Spark's own `spark-submit` makes the driver's pod of a SparkApplication, on a real API server.

Kubeflow's operator runs it: fields of the application become `--conf`, and the pod template becomes a file.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from barnabas_jobs.app.main import OF_SUBMISSION
from barnabas_operator.manifests.kube_object import ClientAccess
from barnabas_operator.manifests.maintenance_run import MAIN_FILE, driver_job, spark_application
from barnabas_operator.planning.object_names import driver_name
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.require import missing
from harness.worker_world import resource
from local_kubernetes.binaries import CannotStart, require
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.soak(only=True)
SECONDS_MAX: Final = 300
BROKERS: Final = "one-broker:9091"
SPEC: Final[dict[str, Any]] = {
    "job": "archive",
    "options": {"topic": "flights", "archive": "/archive/$(HOME)"},
    "backend": "Kubeflow",
    "executors": 2,
    "volumes": [{"name": "archive", "mountPath": "/archive", "claimName": "archives"}],
    "env": [{"name": "KEY", "secretKeyRef": {"name": "s3", "key": "secret"}}],
    "template": {"pod": {"spec": {"nodeSelector": {"disk": "local"}, "tolerations": [{"operator": "Exists"}]}}},
}


def declared(namespace: str) -> MaintenanceJob:
    body = resource("MaintenanceJob", "a", **SPEC)
    return resource_of(MaintenanceJob, {**body, "metadata": {**body["metadata"], "uid": "u", "namespace": namespace}})


def submission(application: dict[str, Any], master: str, template: Path) -> list[str]:
    """Return the arguments that Kubeflow's operator gives `spark-submit` for the fields that our applications have."""
    spec, driver = application["spec"], application["spec"]["driver"]
    prefix = "spark.kubernetes.driver"
    conf = {
        "spark.kubernetes.namespace": application["metadata"]["namespace"],
        "spark.kubernetes.container.image": spec["image"],
        "spark.kubernetes.container.image.pullPolicy": spec["imagePullPolicy"],
        "spark.kubernetes.pyspark.pythonVersion": spec["pythonVersion"],
        "spark.kubernetes.submission.waitAppCompletion": "false",
        f"{prefix}.podTemplateFile": str(template),
        f"{prefix}.podTemplateContainerName": "spark-kubernetes-driver",
        f"{prefix}.pod.name": driver["podName"],
        f"{prefix}.request.cores": driver["coreRequest"],
        "spark.driver.cores": str(driver["cores"]),
        "spark.driver.memory": driver["memory"],
        "spark.driver.memoryOverhead": driver["memoryOverhead"],
        "spark.kubernetes.authenticate.driver.serviceAccountName": driver["serviceAccount"],
        **{f"{prefix}.label.{name}": value for name, value in driver["labels"].items()},
    }
    words = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    place = ["--master", f"k8s://{master}", "--deploy-mode", spec["mode"], "--name", application["metadata"]["name"]]
    return [*place, *words, spec["mainApplicationFile"], *spec["arguments"]]


@pytest.fixture
def namespace(api_server: ControlPlane) -> Iterator[str]:
    name = f"submitted-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", name)
    api_server.kubectl("-n", name, "create", "serviceaccount", "one-maintenance")
    yield name
    api_server.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def pod(api_server: ControlPlane, namespace: str, tmp_path: Path) -> dict[str, Any]:
    """The driver's pod as the API server has it."""
    try:
        import pyspark

        require("java")
    except (CannotStart, ImportError) as reason:
        missing(reason)
    application = spark_application(declared(namespace), "one", ClientAccess(BROKERS), "jobs:dev")
    (template := tmp_path / "driver.yaml").write_text(json.dumps(application["spec"]["driver"]["template"]))
    config = json.loads(api_server.kubeconfig.read_text())
    master = config["clusters"][0]["cluster"]["server"]
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    environment = {**os.environ, "KUBECONFIG": str(api_server.kubeconfig), "SPARK_HOME": str(submit.parents[1])}
    command = [str(submit), *submission(application, master, template)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = api_server.requests.get("Pod", namespace, driver_name("a"))
    assert found is not None
    return dict(found)


def test_a_submitted_driver_has_the_environment_and_mounts_of_a_jobs_driver(
    pod: dict[str, Any], namespace: str
) -> None:
    job = driver_job(declared(namespace), "one", ClientAccess(BROKERS), "jobs:dev")["spec"]["template"]
    (container,), (of_job,) = pod["spec"]["containers"], job["spec"]["containers"]
    assert job["metadata"]["labels"].items() <= pod["metadata"]["labels"].items()
    assert job["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items()
    assert pod["spec"]["nodeSelector"] == job["spec"]["nodeSelector"]
    assert all(each in pod["spec"]["tolerations"] for each in job["spec"]["tolerations"])
    assert container["name"] == "spark-kubernetes-driver"
    assert "command" not in container, "the entrypoint of the image is `barnabas jobs`"
    assert container["securityContext"] == of_job["securityContext"]
    assert {each["name"] for each in of_job["env"]} <= {each["name"] for each in container["env"]}
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {each["mountPath"] for each in of_job["volumeMounts"]} <= mounts
    for field in ("serviceAccountName", "restartPolicy", "terminationGracePeriodSeconds"):
        assert pod["spec"][field] == job["spec"][field]
    assert pod["spec"]["securityContext"].items() >= job["spec"]["securityContext"].items()
    assert container["resources"]["limits"]["memory"] in ("2048Mi", "2Gi")
    assert container["resources"]["requests"]["cpu"] == "500m"
    variables = {each["name"] for each in container["env"] if each["name"].startswith("SPARK_")}
    assert variables == {"SPARK_USER", *OF_SUBMISSION}, "all variables to remove must be known"
    begin = container["args"].index("run")
    runner = ["--class", "org.apache.spark.deploy.PythonRunner", MAIN_FILE]
    assert container["args"][:begin] == ["driver", "--properties-file", "/opt/spark/conf/spark.properties", *runner]
    assert ["barnabas", "jobs", *container["args"][begin:]] == of_job["command"]
