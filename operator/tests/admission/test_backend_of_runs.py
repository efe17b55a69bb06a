"""The webhook refuses a run for Kubeflow's Spark operator if that operator is not installed."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from barnabas_operator.admission import DryRun
from barnabas_operator.kube.api import KubeUnreachable
from harness.kube_memory import KubeMemory, no_server
from harness.maintenance_world import ARCHIVE, KIND, VOLUMES
from harness.manual_loop_clock import ManualLoopClock
from harness.webhook import webhook_said
from harness.worker_world import resource

GROUP: Final = "/apis/sparkoperator.k8s.io/v1beta2"
ENTRY: Final = {"name": "nightly", "schedule": "@daily", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES}
WHY: Final = "the API server has no kind SparkApplication"


def run(backend: str) -> dict[str, Any]:
    return resource(KIND, "a", cluster="one", job="archive", options=ARCHIVE, volumes=VOLUMES, backend=backend)


def cluster(backend: str) -> dict[str, Any]:
    return resource("Cluster", "one", maintenance=[{**ENTRY, "backend": backend}])


async def refusal(
    body: dict[str, Any],
    old: dict[str, Any] | None = None,
    *,
    is_installed: bool = False,
    is_silent: bool = False,
) -> str:
    async with no_server() as connection:
        api = KubeMemory(connection)
        if is_installed:
            api.objects[GROUP] = {"resources": [{"name": "sparkapplications"}]}
        api.refuse = lambda *_: KubeUnreachable("away") if is_silent else None
        said = await webhook_said(old, body, dry_run=DryRun(api, "broker:dev", ManualLoopClock()))
        return str(said.get("status", {}).get("message", ""))


@pytest.mark.parametrize("body", [run, cluster])
async def test_the_webhook_refuses_the_backend_kubeflow_and_says_what_to_install(
    body: Callable[[str], dict[str, Any]],
) -> None:
    assert WHY in await refusal(body("Kubeflow"))
    assert "install Kubeflow's Spark operator" in await refusal(body("Kubeflow"))


@pytest.mark.parametrize("body", [run, cluster])
async def test_the_webhook_allows_a_backend_that_is_installed_or_needs_nothing(
    body: Callable[[str], dict[str, Any]],
) -> None:
    assert not await refusal(body("Kubeflow"), is_installed=True)
    assert not await refusal(body("Kubernetes"))


async def test_a_cluster_that_already_has_a_kubeflow_entry_may_change_without_the_spark_operator() -> None:
    """An administrator who has uninstalled the operator must still be able to add brokers."""
    before = cluster("Kubeflow")
    more_brokers = {**before, "spec": {**before["spec"], "brokers": {"replicas": 5}}}
    another = resource("Cluster", "one", maintenance=[*before["spec"]["maintenance"], {**ENTRY, "name": "weekly"}])
    assert not await refusal(more_brokers, before)
    assert not await refusal(another, before)
    assert WHY in await refusal(before, cluster("Kubernetes"))


@pytest.mark.parametrize("body", [run, cluster])
async def test_the_webhook_allows_the_backend_while_the_api_server_is_unreachable(
    body: Callable[[str], dict[str, Any]],
) -> None:
    assert not await refusal(body("Kubeflow"), is_silent=True)
