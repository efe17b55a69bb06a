"""Dry runs of a Cluster's objects, before the Cluster is stored.

Of its StatefulSet, its schedules, and what is made by a template; and whether its claims can have the declared sizes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.claims import claims_of, rigid_classes
from barnabas_operator.manifests.cluster_objects import templated_objects
from barnabas_operator.manifests.maintenance_schedule import schedules
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.admission.field_translation import in_fields_of_the_cluster
from barnabas_operator.planning.brokers.claim_growth import claims_to_grow, refuse_growth, refuse_smaller
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 2.0
OBJECTS_MAX: Final = 24
"""Of those that a template changes: the Services of a thousand brokers are not asked about in two seconds."""

DryRunCall = Callable[[Cluster], Awaitable[str | None]]
"""What is wrong with the objects of a Cluster; None where nothing is, or nobody can tell now."""


class DryRun:
    """Nothing is stored. An API server that cannot say in time, or for want of rights, has no objection."""

    def __init__(self, api: KubeApi, image: str) -> None:
        self._api = api
        self._image = image

    async def __call__(self, cluster: Cluster) -> str | None:
        """A `DryRunCall`."""
        pods = stateful_set(cluster, ExternalAccess(), self._image, cluster.spec.brokers.replicas)
        others = [*templated_objects(cluster, self._image), *schedules(cluster, self._image)][:OBJECTS_MAX]
        requests = [
            self._disks(cluster),
            self._api.dry_run(pods),
            *(self._api.apply(each, is_dry_run=True) for each in others),
        ]
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                answers = await asyncio.gather(*requests, return_exceptions=True)
        except TimeoutError:
            answers = [TimeoutError("no answer")]
        if isinstance(answers[0], Refusal):
            return answers[0].message
        for each, answer in zip((pods, *others), answers[1:], strict=False):
            if isinstance(answer, KubeRefused) and answer.is_about_the_object:
                name = "" if each is pods else f"{each['kind']} {each['metadata']['name']}: "
                return name + in_fields_of_the_cluster(each["kind"], answer.message)
        for answer in answers:
            _log_what_failed(cluster, answer)
        return None

    async def _disks(self, cluster: Cluster) -> Refusal | None:
        """Whether the claims that are there can have the declared sizes."""
        claims = await claims_of(self._api, cluster)
        smaller = refuse_smaller(cluster, claims)
        if smaller is not None or not claims_to_grow(cluster, claims):
            return smaller
        rigid = await rigid_classes(self._api, {claim.storage_class for claim in claims if claim.storage_class})
        return refuse_growth(cluster, claims, rigid)


def _log_what_failed(cluster: Cluster, answer: object) -> None:
    """Where it is no refusal nobody can tell now. Raises what was not expected."""
    meta = cluster.metadata
    if isinstance(answer, KubeUnreachable | TimeoutError):
        log.warning("%s/%s: no dry run of its objects: %s", meta.namespace, meta.name, answer)
    elif isinstance(answer, BaseException) and not isinstance(answer, KubeRefused):
        raise answer
