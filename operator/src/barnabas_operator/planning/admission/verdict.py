"""The verdict about a change before it is stored. Pure."""

from typing import NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.resources.maintenance_job import MaintenanceJob


class Verdict(NamedTuple):
    """`refusal` names the field, the value and what is allowed; None allows it. `warnings` are sent either way."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


class AdmissionContext(NamedTuple):
    """The surroundings of a resource of a Cluster.

    `taken_by` is a resource about the same topic or group, by name; `state` is the last answer of the brokers;
    `collides_with` is a Topic whose topic differs in `.` and `_` only. For a Cluster, `rebalance_run` is the
    MaintenanceJob whose plan its annotation names. `min_insync_replicas` is what the Cluster declares for topics that
    declare none.
    """

    taken_by: str | None = None
    state: ClusterState | None = None
    collides_with: str | None = None
    rebalance_run: MaintenanceJob | None = None
    min_insync_replicas: str | None = None
