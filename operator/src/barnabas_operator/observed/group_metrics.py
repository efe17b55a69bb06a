"""The operator's metrics of consumer groups that have a ConsumerGroup."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily

from barnabas_lag.evaluation.progress import Status
from barnabas_operator.planning.conditions import condition_before
from barnabas_operator.planning.groups.group_status import DRY_RUN, WORDS
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import OFFSETS_RESET, SCALING_ACTIVE, WITHIN_OBJECTIVE

LABELS: Final = ("resource_namespace", "cluster", "name", "consumergroup")
PREFIX: Final = "barnabas_consumer_group_"
NUMBERS: Final[Mapping[str, Status]] = {word: number for number, word in WORDS.items()}
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
        family = GaugeMetricFamily(PREFIX + metric.name, metric.text, labels=LABELS)
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
    return _number(NUMBERS.get(row.status.get("evaluation", "")))


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
