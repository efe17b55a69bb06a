"""Reads why Kubernetes makes no pod of a broker, or no disk for it."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.object_names import brokers_name, claim_name, pod_name
from barnabas_operator.planning.pods import PodsState
from barnabas_operator.planning.start_obstacles import why_not_bound, why_not_made
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

CLAIM: Final = "PersistentVolumeClaim"
ASK_S: Final = 5.0


class StartObstacles:
    """Of one Cluster. Rounds come twice a second while something is waited for: not each of them asks."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._told: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    async def of(self, cluster: Cluster, pods: PodsState) -> str:
        """What Kubernetes says of pods that do not run, or are not there, and of disks that they wait for."""
        missing = [view.broker_id for view in pods.views() if not view.is_running]
        told = pods.troubles()
        unmade = await self.of_pods(cluster, missing) if missing else ""
        return "; ".join(filter(None, (unmade, told, await self.of_claims(cluster, told))))

    async def of_pods(self, cluster: Cluster, numbers: Collection[int]) -> str:
        """Why these brokers have no pod; empty where nobody says."""
        name = cluster.metadata.name
        about = {"involvedObject.kind": "StatefulSet", "involvedObject.name": brokers_name(name)}
        names = [pod_name(name, number) for number in numbers]
        why = why_not_made(names, await self._events(cluster, about))
        return f"waiting for Kubernetes to start broker {', '.join(map(str, numbers))}: {why}" if why else ""

    async def of_claims(self, cluster: Cluster, troubles: str) -> str:
        """Why pods wait for their disks, where that is among their troubles; empty where nobody says."""
        if CLAIM not in troubles:
            return ""
        name = brokers_name(cluster.metadata.name)
        claims = [f"{claim_name(volume.id)}-{name}-" for volume in cluster.spec.storage.volumes]
        return why_not_bound(claims, await self._events(cluster, {"involvedObject.kind": CLAIM, "type": "Warning"}))

    async def _events(self, cluster: Cluster, about: Mapping[str, str]) -> list[dict[str, Any]]:
        kind, moment = about["involvedObject.kind"], asyncio.get_running_loop().time()
        asked_at, told = self._told.get(kind, (-ASK_S, []))
        if moment - asked_at >= ASK_S:
            try:
                told = await self._api.listing("Event", cluster.metadata.namespace or "default", {}, about)
            except KubeRefused as error:  # Whoever gave it no such right sees less, and has brokers all the same.
                log.debug("events about %s: %s", about, error)
            self._told[kind] = moment, told
        return told
