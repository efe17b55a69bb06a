"""What is said of a change before it is stored. Pure."""

from typing import NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.resources.maintenance_job import MaintenanceJob


class Verdict(NamedTuple):
    """`refusal` names the field, the value and what is allowed; None allows it. `warnings` are sent either way."""

    refusal: str | None = None
    warnings: tuple[str, ...] = ()


class AdmissionContext(NamedTuple):
    """What is there beside a resource of a Cluster: who is about the same in Kafka, by name; what the brokers said
    last; and who is about something whose name collides, as topics do that differ in `.` and `_` only. Of a Cluster,
    the MaintenanceJob of its own whose plan its annotation names. `min_insync_replicas` is what the Cluster declares
    for topics that declare none themselves."""

    taken_by: str | None = None
    state: ClusterState | None = None
    collides_with: str | None = None
    rebalance_run: MaintenanceJob | None = None
    min_insync_replicas: str | None = None
