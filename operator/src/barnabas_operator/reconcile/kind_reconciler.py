"""What a round over a Cluster does about its resources of one kind."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, Protocol

from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.status.reassignment_conditions import PendingMoves
from barnabas_operator.resources.cluster import Cluster

Bodies = Mapping[str, Mapping[str, Any]]
"""Resources of one kind by name, as the watch told them last."""
Connected = Callable[[Cluster], ClusterAdmin]
"""Asks the brokers of a Cluster; called in threads."""


class Seen(NamedTuple):
    """What the round knows of the brokers so far. Each kind passes on what is so after its steps."""

    state: ClusterState
    racks: Mapping[int, str | None]
    """Those of the brokers that answered: they have been told."""
    restarting: Collection[int]
    """The brokers that restart, or are to."""
    ahead: PendingMoves | None = None
    """What moves, and is to."""


class KindReconciler(Protocol):
    """Of one Cluster. What fails stops neither the other kinds nor the rest of the round."""

    async def release(self, bodies: Bodies) -> None:
        """Nobody looks after them any more: their finalizers go."""

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Without the brokers: those that need none of them may go, the others are told why nothing is done."""

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Brings them about, once, and tells them what came of it. Also called where there are none."""
