"""Metrics of the operator's own work, and of the resources that it reconciles."""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from barnabas_lag.evaluation.lags import Status
from barnabas_operator.leader_election import Leadership
from barnabas_operator.observed.inventory import NOBODY, Inventory
from barnabas_operator.planning.conditions import condition_before, epoch_s
from barnabas_operator.planning.groups.group_status import DRY_RUN, WORDS
from barnabas_operator.planning.maintenance.run_status import RUNNING
from barnabas_operator.planning.object_names import SCHEDULE_LABEL, schedule_name
from barnabas_operator.resources.cluster_kind import CLUSTER as CLUSTER_KIND
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import OFFSETS_RESET, READY, SCALING_ACTIVE, WITHIN_OBJECTIVE, Json, Key
from barnabas_operator.resources.maintenance_run import FINISHED, MAINTENANCE_JOB, Phase

LABELS: Final = ("resource_namespace", "cluster", "name", "consumergroup")
GROUP_PREFIX: Final = "barnabas_consumer_group_"
EVALUATION_NUMBERS: Final[Mapping[str, Status]] = {word: number for number, word in WORDS.items()}
TRUTH: Final = {"True": 1.0, "False": 0.0}


class GroupRow(NamedTuple):
    """The values for the metrics of one ConsumerGroup; `labels` are in the order of LABELS."""

    labels: tuple[str, str, str, str]
    spec: Json
    status: Json


class _GroupMetric(NamedTuple):
    """A metric; the function `value` returns the value for a group, or None if the group has no value."""

    name: str
    text: str
    value: Callable[[GroupRow], float | None]


def group_families(rows: Iterable[GroupRow]) -> Iterator[GaugeMetricFamily]:
    """Yield all metric families, even if they have no samples."""
    there = list(rows)
    for metric in GROUP_METRICS:
        family = GaugeMetricFamily(GROUP_PREFIX + metric.name, metric.text, labels=LABELS)
        for row in there:
            value = metric.value(row)
            if value is not None:
                family.add_metric(row.labels, value)
        yield family


def group_row(body: Json, cluster: str) -> GroupRow:
    """Return the values for the metrics of a ConsumerGroup."""
    meta, spec = body["metadata"], body.get("spec") or {}
    labels = (meta["namespace"], cluster, meta["name"], spec.get("groupId") or meta["name"])
    return GroupRow(labels, spec, body.get("status") or {})


def _condition(kind: str) -> Callable[[GroupRow], float | None]:
    """Return a function that maps the status of a condition to 1 or 0, or to None if it is unknown."""
    return lambda row: TRUTH.get(condition_before(row.status, kind).get("status", ""))


def _limit(field: str) -> Callable[[GroupRow], float | None]:
    return lambda row: _number((row.spec.get("lagObjective") or {}).get(field))


def _status(field: str) -> Callable[[GroupRow], float | None]:
    return lambda row: _number(row.status.get(field))


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _evaluation(row: GroupRow) -> float | None:
    return _number(EVALUATION_NUMBERS.get(row.status.get("evaluation", "")))


def _is_reset_pending(row: GroupRow) -> float | None:
    if row.spec.get("pause"):  # The reset of a paused resource is not expected to progress.
        return None
    reset = condition_before(row.status, OFFSETS_RESET)
    return float(reset["status"] == "False" and reset["reason"] != DRY_RUN) if reset else None


GROUP_METRICS: Final = (
    _GroupMetric("within_objective", "1 if the lag is within spec.lagObjective, else 0.", _condition(WITHIN_OBJECTIVE)),
    _GroupMetric(
        "objective_records", "Highest allowed lag in records, from spec.lagObjective.maxRecords.", _limit("maxRecords")
    ),
    _GroupMetric(
        "objective_seconds", "Highest allowed lag in seconds, from spec.lagObjective.maxSeconds.", _limit("maxSeconds")
    ),
    _GroupMetric(
        "objective_retention_percent",
        "Highest allowed unread share of a partition's log in percent, from spec.lagObjective.maxRetentionPercent.",
        _limit("maxRetentionPercent"),
    ),
    _GroupMetric(
        "lag",
        "Lag of the group in records, for all partitions together, rounded and updated once a minute.",
        _status("lag"),
    ),
    _GroupMetric(
        "lag_seconds",
        "Seconds since the oldest unread record was written, rounded and updated once a minute.",
        _status("seconds"),
    ),
    _GroupMetric("members", "Number of consumers in the group.", _status("members")),
    _GroupMetric("evaluation", "Burrow's status of the group: 1 OK, 2 WARN, 4 STOP, 5 STALL, 6 REWIND.", _evaluation),
    _GroupMetric(
        "reset_pending",
        "1 while the declared reset has not been carried out, else 0; absent while the resource is paused.",
        _is_reset_pending,
    ),
    _GroupMetric(
        "scaling_active",
        "1 if the operator scales spec.scaling.target by the lag, else 0.",
        _condition(SCALING_ACTIVE),
    ),
    _GroupMetric(
        "replicas", "Number of replicas that the operator last set for spec.scaling.target.", _status("replicas")
    ),
)


RUN_PREFIX: Final = "barnabas_maintenance_"
ABOUT: Final = ("resource_namespace", "cluster", "job_name", "schedule")
"""The labels of all metrics in this module; `schedule` is empty for a MaintenanceJob that no CronJob created.

The label `job_name` is not named `job`, because Prometheus itself sets a label `job`.
"""
PHASES: Final[Sequence[str]] = get_args(Phase)
RUN_NUMBERS: Final = {
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
    for name, (text, path) in RUN_NUMBERS.items():
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
    family = GaugeMetricFamily(RUN_PREFIX + name, text, labels=labels)
    for *values, number in rows:
        if number is not None:
            family.add_metric(values, number)
    return family


SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
CLUSTER: Final = ("resource_namespace", "cluster")
"""The labels of a Cluster, as in Strimzi. Prometheus itself sets the label `namespace`, to the operator's namespace."""
STRIMZI: Final = (
    "barnabas_reconciliations_total",
    "barnabas_reconciliations_successful_total",
    "barnabas_reconciliations_failed_total",
    "barnabas_reconciliations_duration_seconds",
    "barnabas_resources",
    "barnabas_resources_paused",
    "barnabas_resource_state",
)
"""The metrics that Strimzi also has, under names that begin with `strimzi_`."""


class OperatorMetrics:
    """The operator's metrics. Metrics that Strimzi also has keep Strimzi's names, except for the prefix."""

    def __init__(self, inventory: Inventory) -> None:
        self.registry = CollectorRegistry()
        self._rounds = Counter(
            "barnabas_reconciliations", "Number of reconciliations of a Cluster.", CLUSTER, registry=self.registry
        )
        self._good = Counter(
            "barnabas_reconciliations_successful",
            "Number of reconciliations of a Cluster that succeeded.",
            CLUSTER,
            registry=self.registry,
        )
        self._failed = Counter(
            "barnabas_reconciliations_failed",
            "Number of reconciliations of a Cluster that failed; a failed reconciliation is tried again.",
            CLUSTER,
            registry=self.registry,
        )
        self._seconds = Histogram(
            "barnabas_reconciliations_duration_seconds",
            "Duration of the reconciliations of a Cluster in seconds.",
            CLUSTER,
            buckets=SECONDS,
            registry=self.registry,
        )
        self._watch_errors = Counter(
            "barnabas_watch_errors",
            "Number of objects from a watch that could not be processed; the operator's log has the reasons.",
            ("kind",),
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)
        self._resources = _Resources(inventory)
        self.registry.register(self._resources)

    async def page(self) -> bytes:
        """Return the text of all metrics. A thread formats it, because formatting takes long with 10,000 Topics."""
        self._resources.refresh()
        return await asyncio.to_thread(generate_latest, self.registry)

    def add_leadership(self, leadership: Leadership) -> None:
        """Add the gauge that is 1 for the leader, and 0 for the other operators."""
        text = "1 if this operator is the leader, 0 if another operator is the leader."
        is_leader = Gauge("barnabas_operator_is_leader", text, registry=self.registry)
        is_leader.set_function(lambda: float(leadership.is_held))

    def round_ended(self, cluster: Key, seconds: float, is_good: bool) -> None:
        """Count one reconciliation, and observe its duration.

        Successes and failures both get a series, because a rate needs an earlier sample of 0.
        """
        self._rounds.labels(*cluster).inc()
        self._good.labels(*cluster).inc(is_good)
        self._failed.labels(*cluster).inc(not is_good)
        self._seconds.labels(*cluster).observe(seconds)

    def cluster_went(self, cluster: Key) -> None:
        """Remove the series of a deleted Cluster."""
        for each in (self._rounds, self._good, self._failed, self._seconds):
            each.remove(*cluster)

    def watch_failed(self, kind: str) -> None:
        """Count a watched object that could not be processed."""
        self._watch_errors.labels(kind).inc()


class _Row(NamedTuple):
    """The values for the metrics of one resource; `labels` are kind, namespace and Cluster."""

    labels: tuple[str, str, str]
    name: str
    is_paused: bool
    is_ready: bool
    reason: str


class _Resources(Collector):
    """The collector of the metrics of all resources."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._rows: list[_Row] = []
        self._groups: list[GroupRow] = []
        self._runs: list[RunRow] = []
        self._schedules: list[ScheduleRow] = []
        self._lag_exporters: dict[tuple[str, str], bool] = {}
        self._certificates: list[tuple[tuple[str, str, str], float]] = []

    def refresh(self) -> None:
        """Copy what `collect` needs from the inventory.

        Call this method in the thread of the event loop, because that thread changes the inventory.
        """
        bodies = list(self._inventory.bodies())
        self._rows = [self._row(body) for body in bodies]
        groups = (body for body in bodies if body["kind"] == CONSUMER_GROUP.name)
        self._groups = [group_row(body, self._cluster(body)) for body in groups]
        runs = (body for body in bodies if body["kind"] == MAINTENANCE_JOB.name)
        self._runs = [run_row(body, self._cluster(body)) for body in runs]
        clusters = [body for body in bodies if body["kind"] == CLUSTER_KIND.name]
        self._schedules = [row for body in clusters for row in schedule_rows(body, self._inventory.cron_jobs)]
        self._lag_exporters = {
            (body["metadata"]["namespace"], body["metadata"]["name"]): body.get("spec", {}).get("lagExporter")
            is not None
            for body in clusters
        }
        self._certificates = [
            ((body["metadata"]["namespace"], body["metadata"]["name"], each["name"]), epoch_s(each["notAfter"]))
            for body in clusters
            for each in body.get("status", {}).get("certificates", ())
        ]

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics of all resources, from the copy that the last call of `refresh` made."""
        rows = self._rows
        for name, text, only_paused in (
            ("barnabas_resources", "Number of resources that the operator watches.", False),
            ("barnabas_resources_paused", "Number of resources whose reconciliation is paused.", True),
        ):
            family = GaugeMetricFamily(name, text, labels=["kind", *CLUSTER])
            counts = Tally(row.labels for row in rows if row.is_paused or not only_paused)
            for labels in dict.fromkeys(row.labels for row in rows):
                family.add_metric(labels, counts[labels])
            yield family
        text = "1 if the resource is ready, else 0; the label reason is the reason of the condition Ready."
        states = GaugeMetricFamily("barnabas_resource_state", text, labels=["kind", *CLUSTER, "name", "reason"])
        for row in rows:
            states.add_metric([*row.labels, row.name, row.reason], float(row.is_ready))
        yield states
        text = "1 if a Cluster declares spec.lagExporter, else 0."
        exporters = GaugeMetricFamily("barnabas_cluster_has_lag_exporter", text, labels=CLUSTER)
        for cluster, is_declared in self._lag_exporters.items():
            exporters.add_metric(cluster, float(is_declared))
        yield exporters
        text = "Unix time of expiry of a Cluster's own certificates, and of the User certificate that expires first."
        ends = GaugeMetricFamily(
            "barnabas_certificate_expiration_timestamp_seconds", text, labels=[*CLUSTER, "certificate"]
        )
        for certificate, expires_s in self._certificates:
            ends.add_metric(certificate, expires_s)
        yield ends
        yield from group_families(self._groups)
        yield from maintenance_families(self._runs, self._schedules)

    def _cluster(self, body: Json) -> str:
        cluster = self._inventory.cluster_of(body)
        return cluster.name if cluster is not None else NOBODY

    def _row(self, body: Json) -> _Row:
        meta, ready = body["metadata"], condition_before(body.get("status") or {}, READY)
        labels = (body["kind"], meta["namespace"], self._cluster(body))
        is_paused = bool(body.get("spec", {}).get("pause"))
        return _Row(labels, meta["name"], is_paused, ready.get("status") == "True", ready.get("reason", ""))
