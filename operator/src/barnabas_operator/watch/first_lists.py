"""The first lists: everything that exists is known before the first reconciliation.

kopf's own gate (an index) wakes every object that waits at each that comes: 0.2 s for 250 objects, 4.8 s for 1,000.
"""

import logging
from collections.abc import Iterable

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.resources.kinds import KINDS

log = logging.getLogger(__name__)


async def take_in(
    api: KubeApi, namespace: str | None, workers: ClusterWorkers, pauses_s: Iterable[float], clock: LoopClock
) -> None:
    """Lists all in the namespace (None: anywhere), tells the workers, and lets them begin.

    The watch tells of changes meanwhile. What went since it was listed is found by the audit. An API server that is
    away, that knows nobody's rights yet, or whose namespace is still to come is asked again after each pause.
    """
    for pause_s in pauses_s:
        try:
            await _tell_all(api, namespace, workers)
        except Exception as error:  # Whatever it is: nobody else lets the workers begin.
            is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
            log.warning("cannot list %s yet: %s", namespace or "all namespaces", error, exc_info=is_bug)
            await clock.sleep(pause_s)
        else:
            workers.begin(namespace)
            return


async def _tell_all(api: KubeApi, namespace: str | None, workers: ClusterWorkers) -> None:
    for kind in KINDS:
        async for page in api.pages(kind, namespace):
            for body in page:
                workers.resource_event(body, is_gone=False)
