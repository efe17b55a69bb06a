"""Reads and changes the replicas of the Deployment or StatefulSet that runs a group's consumers."""

from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.groups.scaling import (
    BEFORE_RESET,
    BeforeReset,
    Scalers,
    TargetScale,
    before_text,
    scale_of,
)
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ScaleTarget

AUTOSCALER: Final = "HorizontalPodAutoscaler"


class Scales:
    """The scales of Deployments and StatefulSets in one namespace.

    Every method may raise KubeUnreachable and KubeRefused. Writes raise KubeRefused with the status `CONFLICT` if the
    target has changed since `seen` was read. A returned Refusal says why the target cannot be scaled.
    """

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self, target: ScaleTarget) -> TargetScale | Refusal:
        """Return `spec.replicas` and the annotation `BEFORE_RESET` of the workload, or why it cannot be scaled."""
        return scale_of(target, await self._api.get(target.kind, self._namespace, target.name))

    async def scalers(self) -> Scalers:
        """Return the HorizontalPodAutoscalers and ConsumerGroups of the namespace, which may scale a target."""
        return Scalers(
            autoscalers=await self._api.listing(AUTOSCALER, self._namespace, {}),
            groups=await self._api.listing(CONSUMER_GROUP.name, self._namespace, {}),
        )

    async def scale(self, target: ScaleTarget, seen: TargetScale, replicas: int) -> TargetScale | Refusal:
        """Set the replicas by the subresource `scale`, like an autoscaler; return the new scale."""
        change = {"metadata": {"resourceVersion": seen.version}, "spec": {"replicas": replicas}}
        done = await self._api.patch(target.kind, self._namespace, target.name, change, subresource="scale")
        if done is None:
            return scale_of(target, None)
        return seen._replace(replicas=done["spec"].get("replicas", 0), version=done["metadata"]["resourceVersion"])

    async def remember(
        self, target: ScaleTarget, seen: TargetScale, before: BeforeReset | None
    ) -> TargetScale | Refusal:
        """Annotate the target with `before`, the state before an offset reset; None removes the annotation."""
        annotations = {BEFORE_RESET: before_text(before)}
        change = {"metadata": {"resourceVersion": seen.version, "annotations": annotations}}
        return scale_of(target, await self._api.patch(target.kind, self._namespace, target.name, change))
