"""The operator's watches in each namespace."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.retrying_loop import MustEnd
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.watch.collection_watch import CollectionWatch

OWNED: Final = (
    "ConfigMap",
    "CronJob",
    "Deployment",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
"""The kinds that Clusters own. Only objects with the label of a Cluster are watched.

PodMonitors are not watched, because the kind may not exist. A deleted PodMonitor is created again by the next full
reconciliation.
"""


async def watch_all(
    api: KubeApi,
    namespaces: tuple[str, ...],
    workers: ClusterWorkers,
    on_error: Callable[[str], None],
    clock: LoopClock,
) -> None:
    """Run all watches until cancelled; start the workers of a namespace after all its resources have been listed.

    Raises MustEnd if etcd was restored from a backup.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for namespace in namespaces or (None,):
                for watch in _watches_in(namespace, api, workers, on_error, clock):
                    group.create_task(watch.run())
    except* MustEnd as ended:
        raise MustEnd(str(ended.exceptions[0])) from ended


def _watches_in(
    namespace: str | None, api: KubeApi, workers: ClusterWorkers, on_error: Callable[[str], None], clock: LoopClock
) -> Iterator[CollectionWatch]:
    unlisted = set(KINDS)

    def listed(kind: str) -> None:
        unlisted.discard(kind)
        if not unlisted:
            workers.begin(namespace)

    for kind in KINDS:
        hear, on_listed = workers.resource_event, partial(listed, kind)
        yield CollectionWatch(api, kind, namespace, {}, hear, on_error, on_listed, clock)
    for kind in OWNED:
        labels, hear = {CLUSTER_LABEL: ""}, workers.object_event
        yield CollectionWatch(api, kind, namespace, labels, hear, on_error, lambda: None, clock)
