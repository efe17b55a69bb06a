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
"""The resources of one kind by name, as the watch last reported them."""
Connected = Callable[[Cluster], ClusterAdmin]
"""A function that returns a connection to the brokers of a Cluster; called in threads."""


class Seen(NamedTuple):
    """The last observed state of the brokers, which each reconciler updates and returns."""

    state: ClusterState
    informed: Mapping[int, str | None] | None = None
    """The live brokers with the racks of their pods; None if the reconciliation does not wait for brokers to join."""
    restarting: Collection[int] = ()
    """The ids of the brokers that are restarting or still have to restart."""
    ahead: PendingMoves | None = None
    """The reassignments that the status of the Cluster reports; None before the Topics are reconciled."""


class ReconcilerEnvironment(NamedTuple):
    """The clients and functions that a Cluster's reconcilers share."""

    key: Key
    worker_environment: WorkerEnvironment
    statuses: StatusWriter
    connected: Connected
    found: Callable[[str], Bodies]
    """A function that returns the Cluster's resources of a kind, as the watch last reported them."""


class KindReconciler(Protocol):
    """A reconciler for the resources of one kind in one Cluster."""

    @property
    def idle_s(self) -> float:
        """Return the seconds without progress of the background worker: infinite after its end, 0 without a worker."""
        return 0.0

    def close(self) -> None:
        """End the background worker, if there is one."""

    async def release(self, bodies: Bodies) -> None:
        """Remove the finalizers of resources that are no longer reconciled."""

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Remove the finalizers of deleted resources whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other resources.
        """

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the resources once, write their statuses, and return the new state of the brokers."""
