"""A Cluster's resources of all kinds, in its rounds."""

from collections.abc import Callable, Mapping
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.reconcile.kind_reconciler import Bodies, Connected, KindReconciler, Seen
from barnabas_operator.reconcile.reconcile_parts import ReconcileParts
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.reconcile.topics.topic_reconciler import TopicReconciler
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_key import Key
from barnabas_operator.resources.topic import TOPIC

RECONCILERS: Final[Mapping[str, Callable[[StatusWriter, Connected, Clock], KindReconciler]]] = {
    TOPIC.name: TopicReconciler,
}
"""What has a part in the rounds, by the field `kind`, in the order of the parts."""

Found = Mapping[str, Bodies]
"""The resources of a Cluster by kind."""


class ResourceReconcilers:
    """Of one Cluster."""

    def __init__(self, statuses: StatusWriter, connected: Connected, clock: Clock) -> None:
        self._reconcilers: Final = {kind: make(statuses, connected, clock) for kind, make in RECONCILERS.items()}

    def found(self, inventory: Inventory, cluster: Key) -> Found:
        """What a round is about: what changes meanwhile is for the next one."""
        return {
            kind: {body["metadata"]["name"]: body for body in inventory.resources_of(kind, cluster)}
            for kind in self._reconcilers
        }

    async def release(self, found: Found) -> None:
        """Nobody looks after them any more."""
        for kind, reconciler in self._reconcilers.items():
            await reconciler.release(found[kind])

    async def wait(self, found: Found, why: str) -> None:
        """Without the brokers."""
        for kind, reconciler in self._reconcilers.items():
            await reconciler.wait(found[kind], why)

    async def reconcile(self, cluster: Cluster, found: Found, seen: Seen, parts: ReconcileParts) -> Seen:
        """Each kind in its turn; a kind that fails changes nothing of what is known."""
        for kind, reconciler in self._reconcilers.items():
            seen = await parts.run(reconciler.reconcile(cluster, found[kind], seen)) or seen
        return seen
