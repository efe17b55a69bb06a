"""Takes away what a Cluster had for listeners and brokers that it has no more."""

import logging
from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.services import leftover_services
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.planning.pods import PodsState
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

SERVICE: Final = "Service"


class Leftovers:
    """Looks when the Cluster or its StatefulSet has changed, and again after `forget`: each look is a listing."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: object = None

    def forget(self) -> None:
        """Look again: an operator of before may have left something."""
        self._seen = None

    async def remove(self, cluster: Cluster, pods: PodsState) -> None:
        """Load balancers cost money, and node ports are few. Raises KubeUnreachable and KubeRefused."""
        about = cluster.metadata.generation, pods.broker_set, pods.is_settled
        if about == self._seen:
            return
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        found = await self._api.listing(SERVICE, namespace, {CLUSTER_LABEL: name})
        for each in leftover_services(cluster, pods, found):
            meta = each["metadata"]
            log.info("%s/%s: Service %s leads nowhere any more, and goes", namespace, name, meta["name"])
            await self._api.delete(SERVICE, namespace, meta["name"], preconditions={"uid": meta["uid"]})
        self._seen = about
