"""The request in a Cluster's annotation: a rebalance, or one that a run of the job `skew` has planned. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from barnabas_operator.planning.cluster_state import ReplicaIds
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MaintenanceJob

APPROVAL: Final = "barnabas.dev/rebalance"
APPROVED: Final = "approve"
SKEW: Final = "skew"
ALLOWED: Final = (
    f"allowed: {APPROVED}, or the name of a MaintenanceJob of this Cluster with job {SKEW} that has succeeded"
)


class PlannedPartition(msgspec.Struct, frozen=True):
    """The replicas that a partition shall have, and those that the plan saw.

    `log_dirs` are the paths for them, one for each; those of replicas that stay on their broker count.
    """

    topic: str
    partition: int
    replicas: ReplicaIds
    before: ReplicaIds
    log_dirs: tuple[str, ...] | None = None


class SkewPlan(msgspec.Struct, frozen=True):
    """The plan as the job writes it."""

    version: Literal[1]
    partitions: tuple[PlannedPartition, ...]
    topic_ids: dict[str, str]


class NamedRebalance(NamedTuple):
    """The run that a Cluster names, and its plan; or why there is none.

    `unlisted`: how many partitions the run planned besides, which its status had no room for.
    """

    run: str
    plan: SkewPlan | None
    refusal: str = ""
    unlisted: int = 0


def named_run(cluster: Cluster) -> str | None:
    """The MaintenanceJob whose plan shall be carried out."""
    return _run_of(cluster.metadata.annotations)


def names_another_run(old: Json | None, new: Json) -> bool:
    """True if a change of a Cluster asks for a plan. A plan that is no longer asked for needs no review."""
    name, before = (_run_of(each["metadata"].get("annotations") or {}) for each in (new, old or {"metadata": {}}))
    return new["kind"] == Cluster.__name__ and name is not None and name != before


def _run_of(annotations: Mapping[str, str]) -> str | None:
    word = annotations.get(APPROVAL)
    return None if word == APPROVED else word


def named_rebalance(name: str, run: MaintenanceJob | None) -> NamedRebalance:
    """`run` is the Cluster's of this name; None where it has none."""
    if run is None:
        return _refused(name, "this Cluster has no MaintenanceJob of this name")
    if run.spec.job != SKEW:
        return _refused(name, f"its job is {run.spec.job}, which makes no plan")
    if run.status is None or run.status.phase != "Succeeded":
        phase = run.status.phase if run.status is not None else None
        return _refused(name, f"its phase is {phase or 'Pending'}")
    said = run.status.result.get("plan", "")
    plan = foreign_json(said, SkewPlan) if isinstance(said, str) else None
    if plan is None:
        return _refused(name, "its status.result.plan is not a plan")
    if not plan.partitions:
        return _refused(name, "its plan moves nothing")
    places = Counter(f"{each.topic}-{each.partition}" for each in plan.partitions)
    if len(places) < len(plan.partitions):
        return _refused(name, f"its plan has {max(places, key=places.__getitem__)} more than once")
    planned = run.status.result.get("planned_partitions")
    unlisted = planned - len(plan.partitions) if isinstance(planned, int) else 0
    return NamedRebalance(name, plan, unlisted=max(0, unlisted))


def _refused(name: str, why: str) -> NamedRebalance:
    return NamedRebalance(name, None, f"the annotation {APPROVAL} is {name}: {why}; {ALLOWED}")
