"""Metrics of the operator's own work, and of the resources that it reconciles."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from barnabas_operator.leader_election.leadership import Leadership
from barnabas_operator.observed.group_metrics import GroupRow, group_families, group_row
from barnabas_operator.observed.inventory import NOBODY, Inventory
from barnabas_operator.observed.maintenance_metrics import (
    RunRow,
    ScheduleRow,
    maintenance_families,
    run_row,
    schedule_rows,
)
from barnabas_operator.planning.conditions import condition_before
from barnabas_operator.planning.time_text import epoch_s
from barnabas_operator.resources.cluster_kind import CLUSTER as CLUSTER_KIND
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB
from barnabas_operator.resources.object_key import Key
from barnabas_operator.resources.object_meta import READY

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
        self._resources.look()
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

    def look(self) -> None:
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
        """Yield the metrics of all resources, from the copy that the last call of `look` made."""
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
