"""What a worker does with the resources of one kind."""

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
    """What the worker knows of the brokers so far. Each kind passes on what is true after its steps."""

    state: ClusterState
    informed: Mapping[int, str | None] | None = None
    """The brokers that know their settings, with their racks where known. None: all do."""
    restarting: Collection[int] = ()
    """The brokers that restart, or have to."""
    ahead: PendingMoves | None = None
    """What moves, and has to."""


class ReconcilerEnvironment(NamedTuple):
    """What the worker of a Cluster works with."""

    key: Key
    worker_environment: WorkerEnvironment
    statuses: StatusWriter
    connected: Connected
    found: Callable[[str], Bodies]
    """The Cluster's resources of a kind, by the field `kind`, as the watch has reported them by now."""


class KindReconciler(Protocol):
    """Of one Cluster. A failure stops neither the other kinds nor the rest of the reconciliation."""

    @property
    def idle_s(self) -> float:
        """How long ago what goes on beside the rounds did something; infinite where it has ended. 0: nothing does."""
        return 0.0

    def close(self) -> None:
        """Ends what goes on beside the rounds: there are no more of them."""

    async def release(self, bodies: Bodies) -> None:
        """Nobody reconciles them any more: removes their finalizers."""

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Without brokers: releases those whose deletion needs none, tells the others why nothing is done."""

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconciles them once and writes their statuses. Also called where there are none."""
