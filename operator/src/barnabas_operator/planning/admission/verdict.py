"""The result of an admission review, and the facts that the review needs."""

from typing import NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.resources.maintenance_job import MaintenanceJob


class Verdict(NamedTuple):
    """The result of a review: a refusal, or None if the change is allowed, and warnings for the user."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


class AdmissionContext(NamedTuple):
    """The facts about a Cluster and its resources that a review needs.

    `taken_by` is the name of another resource that already manages the same topic, user or group. `state` is the last
    state that the brokers reported. `collides_with` is the name of a Topic whose topic name differs only in `.` and
    `_`. `rebalance_run` is the MaintenanceJob that the annotation of the Cluster names. `min_insync_replicas` is the
    default of the Cluster. `reserved` are the names that no User of the Cluster may have.
    """

    taken_by: str | None = None
    state: ClusterState | None = None
    collides_with: str | None = None
    rebalance_run: MaintenanceJob | None = None
    min_insync_replicas: str | None = None
    reserved: tuple[str, ...] = ()
