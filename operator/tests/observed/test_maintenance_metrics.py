"""What Prometheus reads of maintenance: runs by phase, how the last of each schedule ended, and when one succeeded."""

import asyncio
from typing import Any

from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from e2e.world import total
from harness.worker_world import resource


def run(name: str, phase: str, ended: str = "", schedule: str = "") -> dict[str, Any]:
    body = resource("MaintenanceJob", name, cluster="one", job="archive", options={})
    labels = {"barnabas.dev/schedule": schedule} if schedule else {}
    status = {"phase": phase, "completionTime": ended} if ended else {"phase": phase}
    return {**body, "metadata": {**body["metadata"], "labels": labels, "resourceVersion": "1"}, "status": status}


def page_of(*bodies: dict[str, Any]) -> str:
    inventory = Inventory()
    for each in bodies:
        inventory.keep({**each, "metadata": {"resourceVersion": "1", **each["metadata"]}}, is_gone=False)
    return asyncio.run(OperatorMetrics(inventory).page()).decode()


ABOUT = {"resource_namespace": "air", "cluster": "one", "job_name": "archive"}
NIGHTLY = {**ABOUT, "schedule": "nightly"}


def test_runs_are_counted_by_phase_and_a_phase_without_any_is_0() -> None:
    page = page_of(run("a", "Running"), run("b", "Failed", "2026-01-01T00:00:00Z"))
    runs = {phase: total(page, "barnabas_maintenance_runs", **ABOUT, phase=phase) for phase in ("Running", "Pending")}
    assert runs == {"Running": 1, "Pending": 0}
    assert 'phase="Pending"' in page


def test_of_a_schedule_the_last_run_counts_and_every_other_run_for_itself() -> None:
    page = page_of(
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


def test_a_schedule_tells_how_old_its_last_success_may_be() -> None:
    entry = {"name": "nightly", "job": "archive", "schedule": "@daily", "maxAgeSeconds": 90000}
    page = page_of(resource("Cluster", "one", maintenance=[entry, {**entry, "name": "x", "maxAgeSeconds": None}]))
    assert total(page, "barnabas_maintenance_schedule_max_age_seconds", **ABOUT) == 90000
