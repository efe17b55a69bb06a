"""The interface of a reconciler for the resources of one kind."""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.status.reassignment_conditions import PendingMoves
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.reconcile.worker_environment import WorkerEnvironment
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_key import Key

Bodies = Mapping[str, Json]
"""Resources of one kind by name, as the watch last reported them."""
Connected = Callable[[Cluster], ClusterAdmin]
"""Asks the brokers of a Cluster; called in threads."""


class Seen(NamedTuple):
    """The worker's view of the brokers, which each reconciler passes on as it is after its steps."""

    state: ClusterState
    informed: Mapping[int, str | None] | None = None
    """The brokers that know their settings, with their racks where known. None: all do."""
    restarting: Collection[int] = ()
    """The brokers that restart, or have to."""
    ahead: PendingMoves | None = None
    """The pending reassignments, and those that will follow."""


class ReconcilerEnvironment(NamedTuple):
    """The environment of a Cluster's reconcilers."""

    key: Key
    worker_environment: WorkerEnvironment
    statuses: StatusWriter
    connected: Connected
    found: Callable[[str], Bodies]
    """The Cluster's resources of a kind, by the field `kind`, as the watch last reported them."""


class KindReconciler(Protocol):
    """A reconciler of one kind in one Cluster; its failure stops neither other kinds nor the reconciliation."""

    @property
    def idle_s(self) -> float:
        """Return the seconds since work beside the rounds acted; infinite if it has ended, 0 if there is none."""
        return 0.0

    def close(self) -> None:
        """End the work beside the rounds: no round follows."""

    async def release(self, bodies: Bodies) -> None:
        """Remove the finalizers of resources that are no longer reconciled."""

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Release resources whose deletion needs no broker, and set `why` in the status of the others."""

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconciles them once and writes their statuses. Also called where there are none."""
