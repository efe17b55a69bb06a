"""The requests about runs cover those that matter now, however many ended ones are kept."""

from typing import Any

import pytest

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.gather import NAMES_MAX, gather_runs
from barnabas_operator.resources.kind import JsonObject
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.kube_memory import KubeMemory
from harness.worker_world import resource

NOW = "2026-01-01T00:00:00Z"


def run_of(name: str, **spec: Any) -> MaintenanceJob:
    return resource_of(MaintenanceJob, resource("MaintenanceJob", name, job="archive", **spec))


class Asked(KubeMemory):
    """An API server that records the label selectors of requests."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.selectors: list[str] = []

    async def request(self, method: str, path: str, **given: Any) -> JsonObject:
        self.selectors.append(given["query"]["labelSelector"])
        return await super().request(method, path, **given)


@pytest.mark.parametrize(
    ("count", "wanted"),
    [(1, ",barnabas.dev/maintenance-job in (a-0)"), (2, ",barnabas.dev/maintenance-job in (a-0,a-1)")],
)
async def test_the_objects_of_few_runs_are_requested_by_name(count: int, wanted: str, connection: ApiClient) -> None:
    api = Asked(connection)
    await gather_runs(api, "air", "one", [run_of(f"a-{number}") for number in range(count)], NOW)
    assert len(api.selectors) == 2
    assert all(each.endswith(wanted) for each in api.selectors)


async def test_the_objects_of_many_runs_are_requested_without_names(connection: ApiClient) -> None:
    api = Asked(connection)
    await gather_runs(api, "air", "one", [run_of("a")] * (NAMES_MAX + 1), NOW)
    assert all("maintenance-job" not in each for each in api.selectors)
