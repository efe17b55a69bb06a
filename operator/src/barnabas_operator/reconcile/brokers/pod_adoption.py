"""Lets the StatefulSet that is there adopt pods of one that is gone, so that their brokers need no restart."""

import logging

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState
from barnabas_operator.planning.brokers.stranded_pods import owners_left, stranded_pods
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.planning.status.adoption_events import adoption_event
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.event_writer import EventWriter
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class PodAdoption:
    """Asks the API server for nothing where no pod is stranded."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._events = EventWriter(api)

    async def begin(self, cluster: Cluster, pods: PodsState) -> None:
        """Takes the reference to the StatefulSet that is gone from each pod that was seen with it.

        Raises KubeUnreachable and KubeRefused.
        """
        now = time_text(self._clock.now_ms())
        stranded = list(stranded_pods(cluster, pods, now))
        uid = pods.broker_set.uid if pods.broker_set is not None else ""
        if not stranded or not await self._is_still_there(cluster, uid):
            return
        for pod in stranded:
            if await self._let_go(cluster, pod, uid):
                event = adoption_event(cluster, pod, now)
                log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, event["message"])
                await self._events.tell(event)

    async def _is_still_there(self, cluster: Cluster, uid: str) -> bool:
        """It was read beside the pods: some of them might be of a younger one."""
        namespace, name = cluster.metadata.namespace or "default", brokers_name(cluster.metadata.name)
        found = await self._api.get("StatefulSet", namespace, name)
        return found is not None and found["metadata"]["uid"] == uid and "deletionTimestamp" not in found["metadata"]

    async def _let_go(self, cluster: Cluster, pod: BrokerPod, uid: str) -> bool:
        """Whether it was still as it was seen; the next round looks again at one that has changed."""
        owners = [dict(each) for each in owners_left(cluster, pod, uid)]
        seen = {"uid": pod.uid, "resourceVersion": pod.version}
        change = {"metadata": {**seen, "ownerReferences": owners}}
        try:
            return await self._api.patch("Pod", cluster.metadata.namespace or "default", pod.name, change) is not None
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            return False
