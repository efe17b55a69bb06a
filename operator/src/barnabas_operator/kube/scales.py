"""The replicas of what runs a group's consumers: a Deployment or StatefulSet of its namespace."""

from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.groups.scalers import Scalers
from barnabas_operator.planning.groups.target_scale import (
    BEFORE_RESET,
    BeforeReset,
    TargetScale,
    before_text,
    scale_of,
)
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ScaleTarget

AUTOSCALER: Final = "HorizontalPodAutoscaler"


class Scales:
    """The scales in one namespace.

    Every method raises KubeUnreachable and KubeRefused. Writes raise KubeRefused with the status `CONFLICT` if the
    target has changed since `seen`: read it again. A Refusal says why there is nothing to read or write.
    """

    def __init__(self, api: KubeApi, namespace: str) -> None:
        self._api = api
        self._namespace = namespace

    async def read(self, target: ScaleTarget) -> TargetScale | Refusal:
        """Return how many replicas are declared, and the annotation that a reset left there."""
        return scale_of(target, await self._api.get(target.kind, self._namespace, target.name))

    async def scalers(self) -> Scalers:
        """Return everything that may scale a target."""
        return Scalers(
            autoscalers=await self._api.listing(AUTOSCALER, self._namespace, {}),
            groups=await self._api.listing(CONSUMER_GROUP.name, self._namespace, {}),
        )

    async def scale(self, target: ScaleTarget, seen: TargetScale, replicas: int) -> TargetScale | Refusal:
        """Declare so many replicas, by the subresource that autoscalers use: policies about pods do not concern it."""
        change = {"metadata": {"resourceVersion": seen.version}, "spec": {"replicas": replicas}}
        done = await self._api.patch(target.kind, self._namespace, target.name, change, subresource="scale")
        if done is None:
            return scale_of(target, None)
        return seen._replace(replicas=done["spec"].get("replicas", 0), version=done["metadata"]["resourceVersion"])

    async def remember(
        self, target: ScaleTarget, seen: TargetScale, before: BeforeReset | None
    ) -> TargetScale | Refusal:
        """Annotate the target with what it returns to after a reset, before scaling down; None removes it."""
        annotations = {BEFORE_RESET: before_text(before)}
        change = {"metadata": {"resourceVersion": seen.version, "annotations": annotations}}
        return scale_of(target, await self._api.patch(target.kind, self._namespace, target.name, change))
