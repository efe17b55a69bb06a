"""The reconcilers of all kinds of resources of a Cluster."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.reconcile.groups.group_looker import group_looker
from barnabas_operator.reconcile.groups.reset_targets import give_back_target
from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.look_worker import LookWorker
from barnabas_operator.reconcile.maintenance.run_looker import RunLooker
from barnabas_operator.reconcile.reconcile_parts import ReconcileParts
from barnabas_operator.reconcile.topics.topic_reconciler import TopicReconciler
from barnabas_operator.reconcile.users.user_reconciler import UserReconciler
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER

RECONCILERS: Final[Mapping[str, Callable[[ReconcilerEnvironment], KindReconciler]]] = {
    TOPIC.name: TopicReconciler,
    USER.name: UserReconciler,
    CONSUMER_GROUP.name: lambda environment: LookWorker(environment, group_looker(environment)),
    MAINTENANCE_JOB.name: lambda environment: LookWorker(environment, RunLooker(environment)),
}
"""The reconcilers by the field `kind`, in the order in which they run."""

WITHOUT_CLUSTER: Final[Mapping[str, Callable[[KubeApi, Clock, Json], Awaitable[None]]]] = {
    CONSUMER_GROUP.name: give_back_target,
}
"""The functions that clean up after resources without a Cluster, by the field `kind`."""

BodiesByKind = Mapping[str, Bodies]
"""The resources of a Cluster by kind."""


class ResourceReconcilers:
    """The reconcilers of one Cluster, called kind by kind."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        self._environment: Final = environment
        self._reconcilers: Final = {kind: make(environment) for kind, make in RECONCILERS.items()}

    @property
    def idle_s(self) -> Mapping[str, float]:
        """Return the seconds without progress of each background worker, by kind of the worker's resources."""
        return {kind: reconciler.idle_s for kind, reconciler in self._reconcilers.items()}

    def close(self) -> None:
        """End the background workers."""
        for reconciler in self._reconcilers.values():
            reconciler.close()

    def found(self) -> BodiesByKind:
        """Return the Cluster's resources by kind, as the watch last reported them."""
        return {kind: self._environment.found(kind) for kind in self._reconcilers}

    async def release(self, found: BodiesByKind) -> None:
        """Remove the finalizers of resources that are no longer reconciled.

        Before that, undo temporary changes, such as the scaling down of a workload for an offset reset.
        """
        for kind, reconciler in self._reconcilers.items():
            await reconciler.release(found[kind])

    async def wait(self, found: BodiesByKind, why: str) -> None:
        """Remove the finalizers of deleted resources whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other resources.
        """
        for kind, reconciler in self._reconcilers.items():
            await reconciler.wait(found[kind], why)

    async def reconcile(self, cluster: Cluster, found: BodiesByKind, seen: Seen, parts: ReconcileParts) -> Seen:
        """Reconcile the resources kind by kind; return the new state of the brokers."""
        for kind, reconciler in self._reconcilers.items():
            seen = await parts.run(reconciler.reconcile(cluster, found[kind], seen)) or seen
        return seen
