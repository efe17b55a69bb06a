"""The operator's metrics of maintenance runs and schedules."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from prometheus_client.core import GaugeMetricFamily

from barnabas_operator.planning.maintenance.run_status import RUNNING
from barnabas_operator.planning.object_names import SCHEDULE_LABEL, schedule_name
from barnabas_operator.planning.time_text import epoch_s
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import FINISHED, Phase
from barnabas_operator.resources.object_key import Key

PREFIX: Final = "barnabas_maintenance_"
ABOUT: Final = ("resource_namespace", "cluster", "job_name", "schedule")
"""The labels of all metrics in this module; `schedule` is empty for a MaintenanceJob that no CronJob created.

The label `job_name` is not named `job`, because Prometheus itself sets a label `job`.
"""
PHASES: Final[Sequence[str]] = get_args(Phase)
NUMBERS: Final = {
    "run_duration_seconds": ("Seconds that a run took, or has taken so far.", ("durationSeconds",)),
    "run_records": ("Number of records that a run has processed.", ("records", "done")),
    "run_records_expected": ("Number of records that a run has to process, if known.", ("records", "total")),
    "run_records_per_second": ("Number of records per second that an active run processes.", ("recordsPerSecond",)),
}
"""The metrics of each run, with the help text and the path of the value in the status of the run."""
COMMIT_AGE_MIN_S: Final = 900.0
COMMIT_AGE_TRIGGERS: Final = 3
TRIGGER_S: Final = 60.0
"""The default interval in seconds at which a continuous archive commits."""


class RunRow(NamedTuple):
    """The values for the metrics of one run; `about` has a value for each label in ABOUT, in the same order."""

    about: tuple[str, str, str, str]
    name: str
    status: Json
    created: str = ""
    commit_max_age_s: float | None = None
    """The highest allowed age of the last commit; None if the run is not a continuous archive."""

    @property
    def planned(self) -> tuple[str, str]:
        """Return the sort key of a run: the creation time, and then the name.

        Runs that were restored from a backup have the same creation time, but their names contain the scheduled time.
        """
        return self.created, self.name


class ScheduleRow(NamedTuple):
    """The values for the metrics of an entry of `spec.maintenance`; `max_age_s` is None if the entry is suspended."""

    about: tuple[str, str, str, str]
    max_age_s: float | None
    created_s: float | None = None
    """The time when the CronJob of the maintenance entry was created."""
    succeeded_s: float | None = None
    """The time of the last success, from the status of the CronJob."""


def run_row(body: Json, cluster: str) -> RunRow:
    """Return the values for the metrics of a MaintenanceJob."""
    meta, job = body["metadata"], body.get("spec", {}).get("job", "")
    schedule = (meta.get("labels") or {}).get(SCHEDULE_LABEL, "")
    about = meta["namespace"], cluster, job, schedule
    status, created = body.get("status") or {}, meta.get("creationTimestamp") or ""
    return RunRow(about, meta["name"], status, created, _commit_max_age_s(body.get("spec", {}).get("options") or {}))


def _commit_max_age_s(options: Json) -> float | None:
    """Return how old the last commit of a continuous archive may be; None for any other run."""
    if options.get("continuous") != "true":
        return None
    trigger = str(options.get("trigger_seconds", ""))
    return max(COMMIT_AGE_MIN_S, COMMIT_AGE_TRIGGERS * (float(trigger) if trigger.isdigit() else TRIGGER_S))


def schedule_rows(body: Json, cron_jobs: Mapping[Key, Json]) -> Iterator[ScheduleRow]:
    """Yield the values for the metrics of each entry of a Cluster's `spec.maintenance`.

    CronJobs of other Clusters in `cron_jobs` are ignored.
    """
    meta = body["metadata"]
    for entry in body.get("spec", {}).get("maintenance") or ():
        name = entry.get("name", "")
        about = (meta["namespace"], meta["name"], entry.get("job", ""), name)
        cron_job = cron_jobs.get(Key(meta["namespace"], schedule_name(meta["name"], name)), {})
        created = cron_job.get("metadata", {}).get("creationTimestamp")
        succeeded = cron_job.get("status", {}).get("lastSuccessfulTime")
        max_age_s = None if entry.get("suspend") else entry.get("maxAgeSeconds")
        yield ScheduleRow(about, max_age_s, _seconds(created), _seconds(succeeded))


def maintenance_families(runs: Iterable[RunRow], schedules: Iterable[ScheduleRow]) -> Iterator[GaugeMetricFamily]:
    """Yield all metric families, even if they have no samples."""
    planned = list(schedules)
    there = sorted(runs, key=lambda row: row.planned)
    yield _counts(there)
    for name, (text, path) in NUMBERS.items():
        yield _family(name, text, (*ABOUT, "name"), ((*row.about, row.name, _at(row.status, path)) for row in there))
    yield from _under_way([row for row in there if row.status.get("phase") == RUNNING])
    yield _family(
        "last_run_succeeded",
        "1 if the run succeeded, 0 if the run failed; of the ended runs of a schedule, only the last is exported.",
        (*ABOUT, "name"),
        ((*row.about, row.name, float(_has_succeeded(row))) for row in _last(there)),
    )
    yield _family(
        "last_success_timestamp_seconds",
        "Unix time of the last successful run, as the schedule's CronJob or the existing MaintenanceJobs report it.",
        ABOUT,
        ((*about, at) for about, at in _last_success_s(there, planned).items()),
    )
    yield _family(
        "schedule_created_timestamp_seconds",
        "Unix time at which the CronJob of a schedule was created.",
        ABOUT,
        ((*each.about, each.created_s) for each in planned),
    )
    yield _family(
        "schedule_max_age_seconds",
        "Highest allowed age in seconds of a schedule's last successful run, from spec.maintenance[].maxAgeSeconds.",
        ABOUT,
        ((*each.about, each.max_age_s) for each in planned),
    )


def _under_way(runs: Iterable[RunRow]) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of active runs. The metrics of commits are only for continuous archives."""
    named = [(row, (*row.about, row.name)) for row in runs]
    archives = [(row, labels) for row, labels in named if row.commit_max_age_s is not None]
    labels = (*ABOUT, "name")
    yield _family(
        "run_driver_running",
        "1 if the driver of an active run is running, 0 if the driver waits or has ended.",
        labels,
        ((*about, float(bool(row.status.get("driverRunning")))) for row, about in named),
    )
    yield _family(
        "run_last_commit_timestamp_seconds",
        "Unix time at which a continuous archive last committed.",
        labels,
        ((*about, _seconds(row.status.get("lastCommitTime"))) for row, about in archives),
    )
    yield _family(
        "run_records_behind",
        "Number of records of the topic that a continuous archive has not committed yet.",
        labels,
        ((*about, _at(row.status, ("recordsBehind",))) for row, about in archives),
    )
    yield _family(
        "run_commit_max_age_seconds",
        "Limit in seconds for the age of a continuous archive's last commit; beyond it, the archive counts as stalled.",
        labels,
        ((*about, row.commit_max_age_s) for row, about in archives),
    )


def _counts(rows: Iterable[RunRow]) -> GaugeMetricFamily:
    """Return the number of runs by phase, with 0 for phases without a run, so that no series is absent."""
    tally = Tally((row.about, row.status.get("phase", PHASES[0])) for row in rows)
    abouts = dict.fromkeys(about for about, _ in tally)
    counts = ((*about, phase, float(tally[about, phase])) for about in abouts for phase in PHASES)
    return _family("runs", "MaintenanceJobs by phase.", (*ABOUT, "phase"), counts)


def _last(rows: Iterable[RunRow]) -> Iterable[RunRow]:
    """Return all ended runs that have no schedule, and the last ended run of each schedule."""
    ended = [row for row in rows if row.status.get("phase") in FINISHED]
    return {(row.about, "" if row.about[-1] else row.name): row for row in ended}.values()


def _last_success_s(runs: Iterable[RunRow], schedules: Iterable[ScheduleRow]) -> Mapping[tuple[str, ...], float]:
    """Return the Unix time of the last successful run by label values, in the order of the labels in ABOUT."""
    kept = ((row.about, _seconds(row.status.get("completionTime"))) for row in runs if _has_succeeded(row))
    found = [*kept, *((each.about, each.succeeded_s) for each in schedules)]
    latest: dict[tuple[str, ...], float] = {}
    for about, at in found:
        if at is not None:
            latest[about] = max(at, latest.get(about, at))
    return latest


def _has_succeeded(row: RunRow) -> bool:
    return bool(row.status.get("phase") == "Succeeded")


def _seconds(at: str | None) -> float | None:
    return epoch_s(at) if at is not None else None


def _at(status: Json, path: Sequence[str]) -> float | None:
    value: Any = status
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else None


def _family(name: str, text: str, labels: Sequence[str], rows: Iterable[Sequence[Any]]) -> GaugeMetricFamily:
    """Return the metric family. Each row has the label values and the number; rows with None are left out."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for *values, number in rows:
        if number is not None:
            family.add_metric(values, number)
    return family
