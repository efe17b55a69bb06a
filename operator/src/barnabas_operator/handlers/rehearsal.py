"""What the API server will say of a Cluster's pods, before the Cluster is stored: a dry run of its StatefulSet."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.facts import Facts
from barnabas_operator.planning.refused_pods import in_words_of_the_cluster
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 2.0

Rehearse = Callable[[Cluster], Awaitable[str | None]]
"""What is wrong with the pods of a Cluster; None where nothing is, or nobody can tell now."""


class Rehearsal:
    """Nothing is stored. An API server that cannot say in time, or for want of rights, has no objection."""

    def __init__(self, api: KubeApi, image: str) -> None:
        self._api = api
        self._image = image

    async def __call__(self, cluster: Cluster) -> str | None:
        """A `Rehearse`."""
        pods = stateful_set(cluster, Facts(), self._image, cluster.spec.brokers.replicas)
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                await self._api.rehearse(pods)
        except KubeRefused as error:
            return in_words_of_the_cluster(error.message) if error.is_about_the_object else None
        except (KubeUnreachable, TimeoutError) as error:
            meta = cluster.metadata
            log.warning("%s/%s: its pods were not rehearsed: %s", meta.namespace, meta.name, error or "no answer")
        return None
