"""The operator's metrics of maintenance: runs, how the last ones ended, and how old a success may be."""

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
"""A run that no schedule has started has an empty one. Prometheus has a `job` of its own, that of the scrape."""
PHASES: Final[Sequence[str]] = get_args(Phase)
NUMBERS: Final = {
    "run_duration_seconds": ("Seconds that a run took, or has taken so far.", ("durationSeconds",)),
    "run_records": ("Records that a run has done.", ("records", "done")),
    "run_records_expected": ("Records that a run has to do, as far as it is known.", ("records", "total")),
    "run_records_per_second": ("Records a second of a run that is under way.", ("recordsPerSecond",)),
}
"""The metrics of each run: the text, and where the number is in the status."""
COMMIT_AGE_MIN_S: Final = 900.0
COMMIT_AGE_TRIGGERS: Final = 3
TRIGGER_S: Final = 60.0
"""The interval at which a continuous archive commits if its options do not say."""


class RunRow(NamedTuple):
    """One run; `about` in the order of ABOUT."""

    about: tuple[str, str, str, str]
    name: str
    status: Json
    created: str = ""
    commit_max_age_s: float | None = None
    """The age that its last commit may have; None if it is not a continuous archive."""

    @property
    def planned(self) -> tuple[str, str]:
        """Puts the runs of a schedule in order. Not by their ends: a run whose status was lost has none, or a late one.

        Those that a backup brought back were created together: their names have the time for which they were planned.
        """
        return self.created, self.name


class ScheduleRow(NamedTuple):
    """An entry of a Cluster's maintenance. One that is suspended may be of any age."""

    about: tuple[str, str, str, str]
    max_age_s: float | None
    created_s: float | None = None
    """The time when its CronJob was created."""
    succeeded_s: float | None = None
    """The time when one of its Jobs last succeeded, though it may be gone: its CronJob remembers."""


def run_row(body: Json, cluster: str) -> RunRow:
    """Return the row of a MaintenanceJob as the watch last reported it."""
    meta, job = body["metadata"], body.get("spec", {}).get("job", "")
    schedule = (meta.get("labels") or {}).get(SCHEDULE_LABEL, "")
    about = meta["namespace"], cluster, job, schedule
    status, created = body.get("status") or {}, meta.get("creationTimestamp") or ""
    return RunRow(about, meta["name"], status, created, _commit_max_age_s(body.get("spec", {}).get("options") or {}))


def _commit_max_age_s(options: Json) -> float | None:
    """Return the age that the last commit may have, by the options of the job."""
    if options.get("continuous") != "true":
        return None
    trigger = str(options.get("trigger_seconds", ""))
    return max(COMMIT_AGE_MIN_S, COMMIT_AGE_TRIGGERS * (float(trigger) if trigger.isdigit() else TRIGGER_S))


def schedule_rows(body: Json, cron_jobs: Mapping[Key, Json]) -> Iterator[ScheduleRow]:
    """Yield the rows of a Cluster as the watch last reported it, and of the CronJobs of all Clusters."""
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
    """One family for each metric, also where there is no run."""
    planned = list(schedules)
    there = sorted(runs, key=lambda row: row.planned)
    yield _counts(there)
    for name, (text, path) in NUMBERS.items():
        yield _family(name, text, (*ABOUT, "name"), ((*row.about, row.name, _at(row.status, path)) for row in there))
    yield from _under_way([row for row in there if row.status.get("phase") == RUNNING])
    yield _family(
        "last_run_succeeded",
        "1 if the last run of a schedule, or one that no schedule has started, succeeded; 0 if it failed.",
        (*ABOUT, "name"),
        ((*row.about, row.name, float(_has_succeeded(row))) for row in _last(there)),
    )
    yield _family(
        "last_success_timestamp_seconds",
        "When a run succeeded last, in Unix time: of a schedule as its CronJob knows it, else of those that are kept.",
        ABOUT,
        ((*about, at) for about, at in _last_success_s(there, planned).items()),
    )
    yield _family(
        "schedule_created_timestamp_seconds",
        "When the CronJob of a schedule was created, in Unix time.",
        ABOUT,
        ((*each.about, each.created_s) for each in planned),
    )
    yield _family(
        "schedule_max_age_seconds",
        "How old the last success of a schedule may be: maxAgeSeconds of its entry.",
        ABOUT,
        ((*each.about, each.max_age_s) for each in planned),
    )


def _under_way(runs: Iterable[RunRow]) -> Iterator[GaugeMetricFamily]:
    """Yield the metrics of runs that are under way. Those of the last commit are about continuous archives."""
    named = [(row, (*row.about, row.name)) for row in runs]
    archives = [(row, labels) for row, labels in named if row.commit_max_age_s is not None]
    labels = (*ABOUT, "name")
    yield _family(
        "run_driver_running",
        "1 if the driver of a run that is under way runs, 0 if it waits or has ended.",
        labels,
        ((*about, float(bool(row.status.get("driverRunning")))) for row, about in named),
    )
    yield _family(
        "run_last_commit_timestamp_seconds",
        "When a continuous archive committed last, in Unix time.",
        labels,
        ((*about, _seconds(row.status.get("lastCommitTime"))) for row, about in archives),
    )
    yield _family(
        "run_records_behind",
        "Records of the topic that a continuous archive has not committed.",
        labels,
        ((*about, _at(row.status, ("recordsBehind",))) for row, about in archives),
    )
    yield _family(
        "run_commit_max_age_seconds",
        "How old the last commit of a continuous archive may be before it counts as stalled.",
        labels,
        ((*about, row.commit_max_age_s) for row, about in archives),
    )


def _counts(rows: Iterable[RunRow]) -> GaugeMetricFamily:
    """Each phase of what there is, for 0 is no absence."""
    tally = Tally((row.about, row.status.get("phase", PHASES[0])) for row in rows)
    abouts = dict.fromkeys(about for about, _ in tally)
    counts = ((*about, phase, float(tally[about, phase])) for about in abouts for phase in PHASES)
    return _family("runs", "MaintenanceJobs by phase.", (*ABOUT, "phase"), counts)


def _last(rows: Iterable[RunRow]) -> Iterable[RunRow]:
    """Return the last of the runs that have ended, in the order in which they were planned."""
    ended = [row for row in rows if row.status.get("phase") in FINISHED]
    return {(row.about, "" if row.about[-1] else row.name): row for row in ended}.values()


def _last_success_s(runs: Iterable[RunRow], schedules: Iterable[ScheduleRow]) -> Mapping[tuple[str, ...], float]:
    """The latest of all that is known, by what it is about."""
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
    """Return the metric with rows of the labels' values and the number, which is None if there is none."""
    family = GaugeMetricFamily(PREFIX + name, text, labels=labels)
    for *values, number in rows:
        if number is not None:
            family.add_metric(values, number)
    return family
