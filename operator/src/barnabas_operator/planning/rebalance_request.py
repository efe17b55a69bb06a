"""The annotation with which a user requests a rebalance of a Cluster.

The annotation approves the rebalance that the operator proposes, or names a MaintenanceJob whose plan is carried out.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from barnabas_operator.planning.cluster_state import ReplicaIds
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json, foreign_json
from barnabas_operator.resources.maintenance_run import MaintenanceJob

APPROVAL: Final = "barnabas.dev/rebalance"
APPROVED: Final = "approve"
SKEW: Final = "skew"
ALLOWED: Final = (
    f"allowed: {APPROVED}, or the name of a MaintenanceJob of this Cluster with job {SKEW} that has succeeded"
)


class PlannedPartition(msgspec.Struct, frozen=True):
    """The planned `replicas` of a partition; `before` are its replicas when the plan was made.

    `log_dirs` holds the path of the log dir for each planned replica, or is None if the plan names no log dirs.
    """

    topic: str
    partition: int
    replicas: ReplicaIds
    before: ReplicaIds
    log_dirs: tuple[str, ...] | None = None


class SkewPlan(msgspec.Struct, frozen=True):
    """The rebalance plan that the job `skew` writes into the status of its MaintenanceJob."""

    version: Literal[1]
    partitions: tuple[PlannedPartition, ...]
    topic_ids: dict[str, str]


class NamedRebalance(NamedTuple):
    """The MaintenanceJob that the Cluster's annotation names, and its rebalance plan.

    If the MaintenanceJob has no valid plan, `plan` is None, and `refusal` says why.

    `unlisted` is the number of planned partitions that did not fit into the status of the MaintenanceJob.
    """

    run: str
    plan: SkewPlan | None
    refusal: str = ""
    unlisted: int = 0


def named_run(cluster: Cluster) -> str | None:
    """Return the name of the MaintenanceJob in the annotation of the Cluster, or None if the annotation names none."""
    return _run_of(cluster.metadata.annotations)


def names_another_run(old: Json | None, new: Json) -> bool:
    """True if a change sets the annotation `APPROVAL` of a Cluster to the name of another MaintenanceJob."""
    name, before = (_run_of(each["metadata"].get("annotations") or {}) for each in (new, old or {"metadata": {}}))
    return new["kind"] == Cluster.__name__ and name is not None and name != before


def _run_of(annotations: Mapping[str, str]) -> str | None:
    word = annotations.get(APPROVAL)
    return None if word == APPROVED else word


def named_rebalance(name: str, run: MaintenanceJob | None) -> NamedRebalance:
    """Return the rebalance plan of the MaintenanceJob `run`, or why there is no valid plan.

    `run` is None if no MaintenanceJob has the name that the Cluster's annotation contains.
    """
    if run is None:
        return _refused(name, "the Cluster has no MaintenanceJob with that name")
    if run.spec.job != SKEW:
        return _refused(name, f"the MaintenanceJob's job is {run.spec.job}, which makes no rebalance plan")
    if run.status is None or run.status.phase != "Succeeded":
        phase = run.status.phase if run.status is not None else None
        return _refused(name, f"the MaintenanceJob's phase is {phase or 'Pending'}")
    said = run.status.result.get("plan", "")
    plan = foreign_json(said, SkewPlan) if isinstance(said, str) else None
    if plan is None:
        return _refused(name, "status.result.plan of the MaintenanceJob is not a valid plan")
    if not plan.partitions:
        return _refused(name, "the plan of the MaintenanceJob is empty")
    places = Counter(f"{each.topic}-{each.partition}" for each in plan.partitions)
    if len(places) < len(plan.partitions):
        return _refused(name, f"the plan contains {max(places, key=places.__getitem__)} more than once")
    planned = run.status.result.get("planned_partitions")
    unlisted = planned - len(plan.partitions) if isinstance(planned, int) else 0
    return NamedRebalance(name, plan, unlisted=max(0, unlisted))


def _refused(name: str, why: str) -> NamedRebalance:
    return NamedRebalance(name, None, f"the annotation {APPROVAL} is {name}: {why}; {ALLOWED}")
