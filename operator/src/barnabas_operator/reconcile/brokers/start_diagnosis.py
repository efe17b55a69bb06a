"""Reads from Kubernetes why a broker's pod does not start or end, and why its disks are not provisioned or grown."""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, BrokerPod, PodsState
from barnabas_operator.planning.object_names import brokers_name, claim_name, pod_name
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.status.claim_conditions import resize_failure
from barnabas_operator.planning.status.start_failures import is_slow, last_warning, why_not_bound, why_not_made
from barnabas_operator.planning.status.terminating_pods import TerminatingPod, is_away, why_not_ended
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

CLAIM: Final = "PersistentVolumeClaim"
RESIZE_FAILED: Final = "VolumeResizeFailed"
ASK_S: Final = 5.0


class StartDiagnosis:
    """The search for reasons why pods of one Cluster do not start or end, and why their disks do not grow.

    The Events about one kind of object, such as Pod, are listed at most every 5 s.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._listed: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    async def of(self, cluster: Cluster, pods: PodsState, now: str) -> str:
        """Return Kubernetes' reports about pods that do not start, do not end or are missing, and about their disks."""
        missing = [view.broker_id for view in pods.views() if not view.is_running]
        troubles = pods.troubles()
        unmade = await self.of_pods(cluster, missing) if missing else ""
        slow = [each for each in pods.pods.values() if each.is_down and not each.is_ending and not each.trouble]
        unstarted = await self._of_starts(cluster, [each for each in slow if is_slow(each.made_at, now)])
        unended = await self.of_ends(
            (TerminatingPod(each.name, each.node, each.ends_at) for each in pods.pods.values()), now
        )
        return "; ".join(filter(None, (unmade, troubles, unstarted, unended, await self.of_claims(cluster, troubles))))

    async def of_ends(self, pods: Iterable[TerminatingPod], now: str) -> str:
        """Return why deleted pods still exist after their grace period; empty if no pod is overdue."""
        overdue = [pod for pod in pods if pod.is_overdue(now)]
        nodes = sorted({pod.node for pod in overdue if pod.node})
        found = await asyncio.gather(*(self._api.get("Node", None, name) for name in nodes))
        return why_not_ended(overdue, [name for name, node in zip(nodes, found, strict=True) if is_away(node)])

    async def of_growth(self, cluster: Cluster, pods: PodsState) -> Refusal | None:
        """Return why disks do not grow, or None. Kubernetes before 1.33 reports failed resizes only as Events."""
        growing = [claim for claim in pods.claims if claim.resize is not None]
        if not growing:
            return None
        events = await self._events(cluster, {"involvedObject.kind": CLAIM, "type": "Warning"})
        failures = [event for event in events if event["reason"] == RESIZE_FAILED]
        said = {claim.name: last_warning(claim.name, failures) for claim in growing}
        texts = [f"{name}: {why}" for name, why in said.items() if why]
        return resize_failure(pods) or (Refusal(CANNOT_GROW, "; ".join(texts)) if texts else None)

    async def _of_starts(self, cluster: Cluster, slow: Collection[BrokerPod]) -> str:
        """Return a report on each pod in `slow`, with its last warning, for example about a failed mount."""
        events = await self._events(cluster, {"involvedObject.kind": "Pod", "type": "Warning"}) if slow else []
        reports = ((f"{pod.name} has not started since {pod.made_at}", last_warning(pod.name, events)) for pod in slow)
        return "; ".join(": ".join(filter(None, each)) for each in reports)

    async def of_pods(self, cluster: Cluster, numbers: Collection[int]) -> str:
        """Return why these brokers have no pod; empty if Kubernetes reports no reason."""
        name = cluster.metadata.name
        about = {"involvedObject.kind": "StatefulSet", "involvedObject.name": brokers_name(name)}
        names = [pod_name(name, number) for number in numbers]
        why = why_not_made(names, await self._events(cluster, about))
        return f"waiting for Kubernetes to start broker {', '.join(map(str, numbers))}: {why}" if why else ""

    async def of_claims(self, cluster: Cluster, troubles: str) -> str:
        """Return why pods wait for their disks; empty if no pod waits, or Kubernetes reports no reason."""
        if CLAIM not in troubles:
            return ""
        name = brokers_name(cluster.metadata.name)
        claims = [f"{claim_name(volume.id)}-{name}-" for volume in cluster.spec.storage.volumes]
        return why_not_bound(claims, await self._events(cluster, {"involvedObject.kind": CLAIM, "type": "Warning"}))

    async def _events(self, cluster: Cluster, about: Mapping[str, str]) -> list[dict[str, Any]]:
        kind, now_s = about["involvedObject.kind"], self._clock.monotonic_s()
        asked_at, events = self._listed.get(kind, (-math.inf, []))
        if now_s - asked_at >= ASK_S:
            try:
                events = await self._api.listing("Event", cluster.metadata.namespace or "default", {}, about)
            except KubeRefused as error:  # The right to list Events is optional.
                log.debug("the Events about %s could not be listed: %s", about, error)
            self._listed[kind] = now_s, events
        return events
