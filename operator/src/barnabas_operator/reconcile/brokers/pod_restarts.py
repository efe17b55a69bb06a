"""Restarts brokers: evicts or deletes their pods, which the StatefulSet controller then creates again."""

import asyncio
import logging
from collections.abc import Sequence

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, TOO_MANY, KubeApi, KubeRefused
from barnabas_operator.kube.gather import RESTART_ASKED
from barnabas_operator.planning.brokers.broker_steps import EVICTION_REFUSED
from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState, stale_brokers
from barnabas_operator.planning.object_names import STALE
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.status.cluster_events import restart_event
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.status_writer import EventWriter
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class PodRestarts:
    """The restarts of brokers. Only the pod with the observed uid is deleted, never the pod that has replaced it."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._events = EventWriter(api)

    async def begin(
        self, cluster: Cluster, pods: Sequence[BrokerPod], *, overrides_budget: bool = False
    ) -> Refusal | None:
        """Evict the first pod, and then delete the other pods, which share no partition with the first pod.

        If the PodDisruptionBudget forbids the eviction, the first pod is deleted if `overrides_budget` is True; else no
        pod is restarted, and the refusal is returned.
        """
        first, *others = pods
        try:
            has_begun = await self._end(cluster, first, asks=True)
        except KubeRefused as error:
            if error.status != TOO_MANY:
                raise
            if not overrides_budget:
                message = f"broker {first.broker_id} must restart, but its eviction is refused: {error.message}"
                return Refusal(EVICTION_REFUSED, message)
            has_begun = await self._end(cluster, first, asks=False)
        if has_begun:
            await asyncio.gather(*(self._end(cluster, pod, asks=False) for pod in others))
        return None

    async def _end(self, cluster: Cluster, pod: BrokerPod, *, asks: bool) -> bool:
        """Evict the pod if `asks` is True, which a PodDisruptionBudget may forbid; otherwise delete the pod.

        A pod whose broker is down or cannot read the metadata is always deleted. Returns False if a new pod already
        has the name of this pod.
        """
        namespace = cluster.metadata.namespace
        try:
            if asks and not pod.is_lost:
                await self._api.evict(namespace, pod.name, pod.uid)
            else:
                await self._api.delete("Pod", namespace, pod.name, preconditions={"uid": pod.uid})
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            return False  # Another pod has replaced the pod; the next reconciliation reads the new pod.
        event = restart_event(cluster, pod, time_text(self._clock.now_ms()))
        log.info("%s/%s: %s", namespace, cluster.metadata.name, event["message"])
        await self._events.tell(event)
        return True


async def mark_stale_pods(api: KubeApi, cluster: Cluster, pods: PodsState) -> None:
    """Annotate the pods of brokers that advertise an outdated address, so that these pods restart one by one.

    Call this function before the StatefulSet is changed, because only the StatefulSet stores the addresses that the
    running brokers advertise. Raises KubeUnreachable and KubeRefused.
    """
    for broker_id, why in stale_brokers(cluster, pods).items():
        pod, namespace = pods.pods[broker_id], cluster.metadata.namespace or "default"
        log.info("%s/%s: %s", namespace, pod.name, why)
        meta = {"uid": pod.uid, "annotations": {RESTART_ASKED: "true", STALE: why}}
        await api.patch("Pod", namespace, pod.name, {"metadata": meta})
