"""The dashboard of maintenance: which runs are under way, which failed, how old each schedule's last success is."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import dashboard
from dashboards.panels import GREEN, RED, Column, Panel, Query, graph, number, rows

METRIC: Final = "barnabas_maintenance_"
OF_CLUSTER: Final = 'resource_namespace=~"$namespace",cluster=~"$cluster"'
CHOSEN: Final = f'{OF_CLUSTER},job_name=~"$job"'
SCHEDULE: Final = "resource_namespace, cluster, job_name, schedule"
RUN: Final = f"{SCHEDULE}, name"
KEYS: Final = {"resource_namespace": "Namespace", "cluster": "Cluster", "job_name": "Job", "schedule": "Schedule"}
LEGEND: Final = "{{resource_namespace}}/{{name}}"
ENDED: Final = {0: ("failed", RED), 1: ("succeeded", GREEN)}


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "maintenance",
        "Maintenance",
        "Which MaintenanceJobs run, how did the last ones end, and how old is the last success of each schedule?",
        (
            ("namespace=resource_namespace", f"{METRIC}runs"),
            ("cluster", f'{METRIC}runs{{resource_namespace=~"$namespace"}}'),
            ("job=job_name", f"{METRIC}runs{{{OF_CLUSTER}}}"),
        ),
        ("State", _state()),
        ("Schedules and runs", [_schedules(), _runs()]),
        ("Over time", _over_time()),
    )


def _each(metric: str, by: str = RUN, more: str = "") -> str:
    """Return a query that counts once what the operators that stand by export, too."""
    return f"max by ({by}) ({METRIC}{metric}{{{CHOSEN}{more}}})"


def _in(phase: str) -> str:
    runs = _each("runs", SCHEDULE, f',phase="{phase}"')
    return f"sum({runs})"


def _state() -> list[Panel]:
    since = f"({_last_success()} or {_each('schedule_created_timestamp_seconds', SCHEDULE)})"
    late = f"time() - {since} > {_each('schedule_max_age_seconds', SCHEDULE)}"
    failed = f"count({_each('last_run_succeeded')} == 0) or vector(0)"
    return [
        number("Running", "MaintenanceJobs that are under way.", _in("Running"), span=4),
        number("Waiting", "Pending MaintenanceJobs: kubectl get bm says what they wait for.", _in("Pending"), span=4),
        number("Succeeded", "MaintenanceJobs that have succeeded and still exist.", _in("Succeeded"), span=4),
        number(
            "Failed last",
            "Last runs of schedules, and runs without a schedule, that failed or found something wrong.",
            failed,
            "short",
            (1, RED),
            span=6,
        ),
        number(
            "Schedules too late",
            "Schedules whose last success (without one, whose creation) is older than maxAgeSeconds.",
            f"count({late}) or vector(0)",
            "short",
            (1, RED),
            span=6,
        ),
    ]


def _last_success() -> str:
    return _each("last_success_timestamp_seconds", SCHEDULE)


def _schedules() -> Panel:
    columns = [
        Column("Since the last success", f"time() - {_last_success()}", "s"),
        Column("Allowed", _each("schedule_max_age_seconds", SCHEDULE), "s"),
    ]
    return rows(
        "Schedules",
        "An empty name stands for the runs that no schedule has started.",
        KEYS,
        columns,
        sort_by="Since the last success",
    )


def _runs() -> Panel:
    columns = [
        Column("Ended", _each("last_run_succeeded"), words=ENDED),
        Column("Seconds", _each("run_duration_seconds"), "s"),
        Column("Records", _each("run_records")),
        Column("Of", _each("run_records_expected")),
    ]
    return rows(
        "Runs",
        "kubectl describe bm has the history of each; docs/how-to/maintenance.md explains the reasons.",
        {**KEYS, "name": "Name"},
        columns,
        sort_by="Seconds",
    )


def _over_time() -> list[Panel]:
    share = f"{_each('run_records')} / ({_each('run_records_expected')} > 0) * 100"
    return [
        graph(
            "Progress",
            "Share of the records that are done, where the total is known.",
            "percent",
            Query(share, LEGEND),
            span=12,
        ),
        graph(
            "Records a second",
            "Rate of each run that is under way.",
            "short",
            Query(_each("run_records_per_second"), LEGEND),
            span=12,
        ),
        graph(
            "How long runs take",
            "Duration of the runs that still exist; of those under way, so far.",
            "s",
            Query(_each("run_duration_seconds"), LEGEND),
            span=12,
        ),
        graph(
            "Since the last success",
            "Time since the last success of each schedule.",
            "s",
            Query(f"time() - {_last_success()}", "{{resource_namespace}}/{{cluster}} {{job_name}} {{schedule}}"),
            span=12,
        ),
    ]
