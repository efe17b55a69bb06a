"""Templates apply to all pods of maintenance: drivers, executors, and the pods that start runs."""

from typing import Any

from msgspec import json

from barnabas_operator.manifests.kube_object import ClientAccess, KubeObject
from barnabas_operator.manifests.maintenance_run import (
    EXECUTOR_ANNOTATION,
    as_the_cluster_says,
    driver_job,
    run_access,
    schedules,
    spark_application,
    starter_access,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE, KIND, VOLUMES
from harness.worker_world import resource

OF_ALL = {"labels": {"team": "air", "cost": "1"}, "annotations": {"sidecar.istio.io/inject": "false"}}
POD = {
    "metadata": {"labels": {"cost": "2", "app.kubernetes.io/name": "mine"}},
    "spec": {"imagePullSecrets": [{"name": "login"}], "priorityClassName": "low"},
}
RUN: dict[str, Any] = {
    "job": "archive",
    "options": ARCHIVE,
    "volumes": VOLUMES,
    "executors": 1,
    "template": {"pod": POD},
}
ENTRY = {**RUN, "name": "nightly", "schedule": "@daily"}
ONE = resource_of(Cluster, resource("Cluster", "one", maintenance=[ENTRY], template={"metadata": OF_ALL}))
SECRETS = [{"name": "login"}]


def dressed() -> MaintenanceJob:
    return as_the_cluster_says(resource_of(MaintenanceJob, resource(KIND, "a", **RUN)), ONE)


def is_dressed(pod: KubeObject, name: str | None) -> bool:
    meta, spec = pod["metadata"], pod["spec"]
    labels, annotations = meta["labels"], meta["annotations"]
    assert (labels["team"], labels["cost"]) == ("air", "2")
    assert name is None or labels["app.kubernetes.io/name"] == name, "selectors use this label"
    assert annotations["sidecar.istio.io/inject"] == "false"
    return bool(spec["imagePullSecrets"] == SECRETS and spec["priorityClassName"] == "low")


def test_the_templates_of_run_and_cluster_apply_to_a_driver_and_its_executors() -> None:
    driver = driver_job(dressed(), "one", ClientAccess("b:1"), "jobs:dev")["spec"]["template"]
    assert is_dressed(driver, "barnabas-maintenance")
    assert is_dressed(json.decode(driver["metadata"]["annotations"][EXECUTOR_ANNOTATION]), None)


def test_the_templates_apply_to_a_driver_that_kubeflows_operator_submits() -> None:
    driver = spark_application(dressed(), "one", ClientAccess("b:1"), "jobs:dev")["spec"]["driver"]["template"]
    assert is_dressed(driver, "barnabas-maintenance")


def test_the_templates_apply_to_a_pod_that_starts_runs() -> None:
    (made,) = schedules(ONE, "operator:dev")
    assert is_dressed(made["spec"]["jobTemplate"]["spec"]["template"], "barnabas-maintenance-start")


def test_pods_without_pull_secrets_of_their_own_get_those_of_the_chart_and_service_accounts_never_do() -> None:
    plain = {**RUN, "template": {}}
    run = as_the_cluster_says(resource_of(MaintenanceJob, resource(KIND, "a", **plain)), ONE, ["login"])
    entry = {**plain, "name": "nightly", "schedule": "@daily"}
    (started,) = schedules(resource_of(Cluster, resource("Cluster", "one", maintenance=[entry])), "o:dev", ["login"])
    driver = driver_job(run, "one", ClientAccess("b:1"), "jobs:dev")["spec"]["template"]
    executor = json.decode(driver["metadata"]["annotations"][EXECUTOR_ANNOTATION])
    for pod in (driver, executor, started["spec"]["jobTemplate"]["spec"]["template"]):
        assert pod["spec"]["imagePullSecrets"] == SECRETS
    for account, _ in (run_access(ONE), starter_access(ONE)):
        assert "imagePullSecrets" not in account
