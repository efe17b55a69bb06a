"""Metrics of maintenance: runs by phase, the result of the last run of each schedule, and the last success."""

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from barnabas_kube.client import ApiClient
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.planning.maintenance.observed_run import STARTED
from barnabas_operator.planning.maintenance.run_status import recalled, refused
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of, status_json
from e2e.world import total
from harness.kube_memory import KubeMemory
from harness.worker_world import environment_of, resource


def run(name: str, phase: str, ended: str = "", schedule: str = "") -> dict[str, Any]:
    body = resource("MaintenanceJob", name, cluster="one", job="archive", options={})
    labels = {"barnabas.dev/schedule": schedule} if schedule else {}
    status = {"phase": phase, "completionTime": ended} if ended else {"phase": phase}
    return {**body, "metadata": {**body["metadata"], "labels": labels, "resourceVersion": "1"}, "status": status}


async def page_of(*bodies: dict[str, Any], cron_job: dict[str, Any] | None = None) -> str:
    inventory = Inventory()
    if cron_job is not None:
        inventory.keep_cron_job(cron_job, is_gone=False)
    for each in bodies:
        inventory.keep({**each, "metadata": {"resourceVersion": "1", **each["metadata"]}}, is_gone=False)
    return (await OperatorMetrics(inventory).page()).decode()


AT = "2026-01-02T00:00:00Z"
ABOUT = {"resource_namespace": "air", "cluster": "one", "job_name": "archive"}
NIGHTLY = {**ABOUT, "schedule": "nightly"}


async def test_runs_are_counted_by_phase_and_a_phase_without_any_is_0() -> None:
    page = await page_of(run("a", "Running"), run("b", "Failed", "2026-01-01T00:00:00Z"))
    runs = {phase: total(page, "barnabas_maintenance_runs", **ABOUT, phase=phase) for phase in ("Running", "Pending")}
    assert runs == {"Running": 1, "Pending": 0}
    assert 'phase="Pending"' in page


async def test_the_last_run_of_a_schedule_counts_and_each_run_without_a_schedule() -> None:
    page = await page_of(
        run("n1", "Failed", "2026-01-01T00:00:00Z", "nightly"),
        run("n2", "Succeeded", "2026-01-02T00:00:00Z", "nightly"),
        run("n3", "Running", schedule="nightly"),
        run("once", "Failed", "2026-01-01T00:00:00Z"),
    )
    lines = [line for line in page.splitlines() if line.startswith("barnabas_maintenance_last_run_succeeded{")]
    assert len(lines) == 2
    assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == 1
    assert all(f'name="{name}"' in "".join(lines) for name in ("n2", "once"))
    assert total(page, "barnabas_maintenance_last_success_timestamp_seconds", **NIGHTLY) == 1767312000.0


async def test_a_lost_or_refused_run_counts_as_the_last_one_of_its_schedule() -> None:
    """Otherwise no alert would report a schedule whose runs can no longer start."""
    succeeded = run("n1", "Succeeded", "2026-01-01T00:00:00Z", "nightly")
    begun = resource_of(MaintenanceJob, run("n2", "Running", schedule="nightly"))
    for failed in (recalled(begun, "one", STARTED, AT), refused(begun, "one", "no such field", AT)):
        page = await page_of(succeeded, {**run("n2", "", schedule="nightly"), "status": status_json(failed)})
        assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == 0


def made_at(created: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "creationTimestamp": created}}


def recalled_run(name: str, mark: str, created: str) -> dict[str, Any]:
    """Return a run without its status and its Job, so that its end is unknown."""
    body = run(name, "", schedule="nightly")
    status = status_json(recalled(resource_of(MaintenanceJob, body), "one", mark, "2026-01-09T00:00:00Z"))
    assert "completionTime" not in status
    return made_at(created, {**body, "status": status})


async def test_a_run_whose_status_was_lost_is_ordered_by_its_creation_time() -> None:
    succeeded = made_at("2026-01-02T00:00:00Z", run("n2", "Succeeded", "2026-01-02T00:10:00Z", "nightly"))
    after, before = "2026-01-03T00:00:00Z", "2026-01-01T00:00:00Z"
    page = await page_of(recalled_run("n3", "Failed", after), succeeded)
    assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == 0
    page = await page_of(recalled_run("n1", "Failed", before), succeeded)
    assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == 1


async def test_of_runs_that_a_backup_brought_back_at_once_without_their_status_the_last_planned_counts() -> None:
    for first, last in (("Failed", "Succeeded"), ("Succeeded", "Failed")):
        page = await page_of(recalled_run("n-29384642", last, AT), recalled_run("n-29384641", first, AT))
        assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == float(last == "Succeeded")


async def test_a_run_that_is_reported_lost_late_does_not_become_the_last_of_its_schedule() -> None:
    """After a restore its end is the time when the operator notices it, and the status of the next run is lost."""
    lost = made_at(AT, run("n-29384641", "Failed", "2026-01-09T00:00:00Z", "nightly"))
    page = await page_of(lost, recalled_run("n-29384642", "Succeeded", AT))
    assert total(page, "barnabas_maintenance_last_run_succeeded", **NIGHTLY) == 1


async def test_a_schedule_exports_the_maximum_age_of_its_last_success() -> None:
    entry = {"name": "nightly", "job": "archive", "schedule": "@daily", "maxAgeSeconds": 90000}
    others = {**entry, "name": "x", "maxAgeSeconds": None}, {**entry, "name": "y", "suspend": True}
    page = await page_of(resource("Cluster", "one", maintenance=[entry, *others]))
    assert total(page, "barnabas_maintenance_schedule_max_age_seconds", **ABOUT) == 90000


ENTRY = {"name": "nightly", "job": "archive", "schedule": "@daily", "maxAgeSeconds": 90000}


def cron_job(**status: Any) -> dict[str, Any]:
    meta = {"name": "one-nightly", "namespace": "air", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"kind": "CronJob", "metadata": meta, "spec": {}, "status": status}


async def test_a_schedule_that_has_never_succeeded_exports_its_creation_time() -> None:
    page = await page_of(resource("Cluster", "one", maintenance=[ENTRY]), cron_job=cron_job())
    assert total(page, "barnabas_maintenance_schedule_created_timestamp_seconds", **NIGHTLY) == 1767225600.0
    assert "barnabas_maintenance_last_success_timestamp_seconds{" not in page


async def test_the_last_success_is_read_from_the_cron_job_if_its_run_was_deleted() -> None:
    told = cron_job(lastSuccessfulTime="2026-01-03T00:00:00Z")
    kept = run("n2", "Succeeded", "2026-01-02T00:00:00Z", "nightly")
    page = await page_of(resource("Cluster", "one", maintenance=[ENTRY]), kept, cron_job=told)
    assert total(page, "barnabas_maintenance_last_success_timestamp_seconds", **NIGHTLY) == 1767398400.0


async def test_the_inventory_has_the_cron_jobs_that_the_watch_reports(connection: ApiClient) -> None:
    inventory = Inventory()
    workers = ClusterWorkers(inventory, environment_of(KubeMemory(connection)), OperatorMetrics(inventory))
    body = cron_job()
    labelled = {**body, "metadata": {**body["metadata"], "labels": {"barnabas.dev/cluster": "one"}}}
    workers.object_event(labelled, is_gone=False)
    assert [key.name for key in inventory.cron_jobs] == ["one-nightly"]
    workers.object_event(labelled, is_gone=True)
    assert not inventory.cron_jobs
    await workers.close()


def under_way(name: str, options: dict[str, str], **status: object) -> dict[str, Any]:
    body = run(name, "Running")
    return {**body, "spec": {**body["spec"], "options": options}, "status": {**body["status"], **status}}


def by_run(page: str, metric: str) -> dict[str, float]:
    """Return the values of the metric by the names of runs."""
    families = text_string_to_metric_families(page)
    name = f"barnabas_maintenance_run_{metric}"
    return {each.labels["name"]: each.value for family in families for each in family.samples if each.name == name}


async def test_a_continuous_archive_exports_its_last_commit_and_how_far_it_is_behind() -> None:
    said = {"driverRunning": True, "lastCommitTime": AT, "recordsBehind": 7}
    page = await page_of(
        under_way("a", {"continuous": "true"}, **said),
        under_way("slow", {"continuous": "true", "trigger_seconds": "3600"}, **said),
        under_way("once", {}, **said),
    )
    assert by_run(page, "last_commit_timestamp_seconds") == dict.fromkeys(("a", "slow"), 1767312000.0)
    assert by_run(page, "records_behind") == dict.fromkeys(("a", "slow"), 7)
    assert by_run(page, "commit_max_age_seconds") == {"a": 900, "slow": 10800}


async def test_a_run_in_progress_exports_whether_its_driver_runs() -> None:
    over = run("over", "Succeeded", "2026-01-01T00:00:00Z")
    page = await page_of(under_way("a", {}, driverRunning=True), under_way("waits", {}), over)
    assert by_run(page, "driver_running") == {"a": 1, "waits": 0}
