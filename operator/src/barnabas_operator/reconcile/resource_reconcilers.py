"""A Cluster's resources of all kinds, in its rounds."""

from collections.abc import Callable, Mapping
from typing import Final

from barnabas_operator.reconcile.groups.group_reconciler import GroupReconciler
from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerTools, Seen
from barnabas_operator.reconcile.reconcile_parts import ReconcileParts
from barnabas_operator.reconcile.topics.topic_reconciler import TopicReconciler
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.topic import TOPIC

RECONCILERS: Final[Mapping[str, Callable[[ReconcilerTools], KindReconciler]]] = {
    TOPIC.name: TopicReconciler,
    CONSUMER_GROUP.name: GroupReconciler,
}
"""What has a part in the rounds, by the field `kind`, in the order of the parts."""

Found = Mapping[str, Bodies]
"""The resources of a Cluster by kind."""


class ResourceReconcilers:
    """Of one Cluster."""

    def __init__(self, tools: ReconcilerTools) -> None:
        self._tools: Final = tools
        self._reconcilers: Final = {kind: make(tools) for kind, make in RECONCILERS.items()}

    @property
    def idle_s(self) -> Mapping[str, float]:
        """By kind, how long ago what goes on beside the rounds did something."""
        return {kind: reconciler.idle_s for kind, reconciler in self._reconcilers.items()}

    def close(self) -> None:
        """There are no more rounds."""
        for reconciler in self._reconcilers.values():
            reconciler.close()

    def found(self) -> Found:
        """What a round is about: what changes meanwhile is for the next one."""
        return {kind: self._tools.found(kind) for kind in self._reconcilers}

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
