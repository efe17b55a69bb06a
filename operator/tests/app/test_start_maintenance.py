"""`barnabas start-maintenance` starts one run, and its exit code says how the run ended."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas_operator.app.start_maintenance import EXIT_FAILED, EXIT_TRY_AGAIN, EXIT_USAGE, Started, exit_code
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.resources.kind import JsonObject
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.maintenance_world import ARCHIVE, KIND, VOLUMES
from harness.worker_world import resource

STARTED = Started("one", "nightly", "air", "one-nightly-1", "u-1")
NIGHTLY = {"name": "nightly", "schedule": "@daily", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES}
SUCCEEDED = {"phase": "Succeeded", "conditions": [{"type": "Ready", "message": "done"}]}


def run_of(job_uid: str, **meta: Any) -> JsonObject:
    body = resource(KIND, STARTED.job_name, cluster="one", job="archive", options=ARCHIVE, volumes=VOLUMES)
    owners = [{"kind": "Job", "name": STARTED.job_name, "uid": job_uid}]
    return {**body, "metadata": {**body["metadata"], "uid": f"of-{job_uid}", "ownerReferences": owners, **meta}}


async def ends(before: Callable[[KubeMemory], object], between: Callable[[KubeMemory], object] = lambda _: None) -> int:
    """Return the command's exit code; call `between` each time that the command waits."""
    async with no_server() as connection:
        api = KubeMemory(connection)
        api.put(resource("Cluster", "one", maintenance=[NIGHTLY]))
        before(api)

        def waits() -> Awaitable[None]:
            between(api)
            return asyncio.sleep(0)

        async with asyncio.timeout(PATIENCE_S):
            return await exit_code(api, STARTED, waits)


def succeeds(api: KubeMemory) -> None:
    api.put({**(api.found(KIND, STARTED.job_name) or {}), "status": SUCCEEDED})


def test_the_command_names_the_missing_variables_outside_a_cronjobs_pod() -> None:
    done = barnabas_here("start-maintenance", "one", "nightly")
    assert done.returncode == 2
    assert (
        "POD_NAMESPACE, JOB_NAME, JOB_UID are not set; this command runs only in the pods of a Cluster's CronJobs"
        in done.stderr
    )


async def test_a_second_pod_waits_for_the_run_that_a_dead_pod_started() -> None:
    assert await ends(lambda api: api.put(run_of("u-1")), succeeds) == 0


async def test_the_command_refuses_a_run_of_its_name_that_another_job_owns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await ends(lambda api: api.put({**run_of("u-0"), "status": SUCCEEDED})) == EXIT_USAGE
    assert "another object owns the MaintenanceJob one-nightly-1; delete this MaintenanceJob" in capsys.readouterr().err


async def test_the_command_waits_until_a_terminating_run_of_its_name_is_removed() -> None:
    def goes(api: KubeMemory) -> None:
        found = api.found(KIND, STARTED.job_name) or {}
        if found["metadata"]["uid"] == "of-u-0":
            api.put({**found, "metadata": {**found["metadata"], "finalizers": []}})
        else:
            succeeds(api)

    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    assert await ends(lambda api: api.put({**run_of("u-0", **gone), "status": {"phase": "Failed"}}), goes) == 0


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_the_exit_code_requests_another_pod_after_a_refusal_that_may_pass(method: str) -> None:
    def refuses(api: KubeMemory) -> None:
        api.refuse = lambda found, path, _: (
            KubeRefused(403, "Forbidden", path) if found == method and KIND.lower() in path else None
        )

    assert await ends(refuses) == EXIT_TRY_AGAIN


async def test_the_exit_code_requests_no_other_pod_for_an_invalid_run() -> None:
    def refuses(api: KubeMemory) -> None:
        api.refuse = lambda method, *_: KubeRefused(422, "Invalid", "name") if method == "POST" else None

    assert await ends(refuses) == EXIT_USAGE


async def test_a_deleted_run_counts_as_failed() -> None:
    def goes(api: KubeMemory) -> None:
        api.objects = {path: each for path, each in api.objects.items() if each["kind"] != KIND}

    assert await ends(lambda _: None, goes) == EXIT_FAILED
