"""The CronJobs of a Cluster's maintenance, and the MaintenanceJobs that they create."""

from typing import Any

import pytest

from barnabas_operator.manifests.maintenance_run import leftover_schedules, schedules, starter_access
from barnabas_operator.planning.maintenance.run_checks import scheduled_run
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import NAME_MAX, MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import ARCHIVE
from harness.worker_world import resource

NIGHTLY = {"name": "nightly", "schedule": "0 3 * * *", "job": "archive", "options": ARCHIVE, "executors": 2}
NUMBER = "-29412345"
"""The suffix that Kubernetes adds to the name of a CronJob for each of its Jobs."""


def cluster_of(*entries: dict[str, Any], name: str = "one") -> Cluster:
    return resource_of(Cluster, resource("Cluster", name, maintenance=list(entries)))


def cron_job(cluster: Cluster) -> dict[str, Any]:
    (made,) = schedules(cluster, "operator:dev")
    return made


def test_an_entry_becomes_a_cron_job_whose_pod_starts_its_runs() -> None:
    made = cron_job(cluster_of({**NIGHTLY, "timeZone": "Europe/Berlin", "suspend": True}))
    assert made["metadata"]["name"] == "one-nightly"
    spec = made["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("0 3 * * *", "Europe/Berlin", True)
    assert (spec["concurrencyPolicy"], spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (
        "Forbid",
        3,
        1,
    )
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["start-maintenance", "one", "nightly"]


def test_the_pods_of_a_cron_job_trigger_no_round_of_the_cluster() -> None:
    template = cron_job(cluster_of(NIGHTLY))["spec"]["jobTemplate"]["spec"]["template"]
    assert "barnabas.dev/cluster" not in template["metadata"]["labels"]


def test_the_right_to_start_runs_exists_only_for_a_cluster_with_entries() -> None:
    assert not starter_access(cluster_of())
    account, binding = starter_access(cluster_of(NIGHTLY))
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]
    assert binding["roleRef"]["name"] == "barnabas-maintenance-starter"


def test_only_the_cron_job_of_a_removed_entry_is_left_over() -> None:
    weekly = {**NIGHTLY, "name": "weekly"}
    there = schedules(cluster_of(NIGHTLY, weekly), "operator:dev")
    foreign = {"metadata": {"name": "other", "labels": {}, "ownerReferences": []}}
    left = leftover_schedules(cluster_of(NIGHTLY), [*there, foreign])
    assert [each["metadata"]["name"] for each in left] == ["one-weekly"]


def test_the_names_of_runs_fit_the_limit_of_their_services() -> None:
    made = cron_job(cluster_of({**NIGHTLY, "name": "n" * 63}, name="c" * 40))
    assert len(made["metadata"]["name"] + NUMBER) <= NAME_MAX


def test_a_scheduled_run_has_the_fields_of_its_entry_without_the_schedule() -> None:
    body = resource("Cluster", "one", maintenance=[NIGHTLY])
    made = scheduled_run(body, "nightly", f"one-nightly{NUMBER}", "u-1")
    run = resource_of(MaintenanceJob, made)
    assert (run.spec.cluster, run.spec.job, run.spec.options, run.spec.executors) == ("one", "archive", ARCHIVE, 2)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert made["metadata"]["labels"]["barnabas.dev/schedule"] == "nightly"
    with pytest.raises(LookupError, match=r"has no entry weekly in spec\.maintenance; allowed: nightly"):
        scheduled_run(body, "weekly", "x", "u-1")


@pytest.mark.parametrize("folder", ["/reports/skew", "/reports/skew/"])
def test_each_run_of_an_entry_has_its_own_report(folder: str) -> None:
    entry = {**NIGHTLY, "job": "skew", "options": {"report": folder, "top": "3"}}
    body = resource("Cluster", "one", maintenance=[entry])
    runs = [scheduled_run(body, "nightly", f"one-nightly-{number}", "u-1") for number in (1, 2)]
    reports = [run["spec"]["options"]["report"] for run in runs]
    assert reports == ["/reports/skew/one-nightly-1", "/reports/skew/one-nightly-2"]
    assert runs[0]["spec"]["options"]["top"] == "3"


def test_the_ttl_of_an_entry_applies_to_the_job_and_not_to_the_run() -> None:
    cluster = cluster_of({**NIGHTLY, "ttlSecondsAfterFinished": 3})
    assert cron_job(cluster)["spec"]["jobTemplate"]["spec"]["ttlSecondsAfterFinished"] == 3
    assert "ttlSecondsAfterFinished" not in cron_job(cluster_of(NIGHTLY))["spec"]["jobTemplate"]["spec"]
    body = resource("Cluster", "one", maintenance=[{**NIGHTLY, "ttlSecondsAfterFinished": 3}])
    assert "ttlSecondsAfterFinished" not in scheduled_run(body, "nightly", "x", "u-1")["spec"]
