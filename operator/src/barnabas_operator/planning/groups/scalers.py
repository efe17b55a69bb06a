"""The check that no other autoscaler or ConsumerGroup scales the same target."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas_operator.planning.groups.target_scale import TARGET_BUSY, TargetScale, named
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.consumer_group import ConsumerGroup, ScaleTarget, Scaling
from barnabas_operator.resources.json_types import Json


class Scalers(NamedTuple):
    """The objects in a namespace that may scale a target, as JSON from the API server."""

    autoscalers: Sequence[Json]
    """The HorizontalPodAutoscalers, including those that KEDA creates for ScaledObjects."""
    groups: Sequence[Json]
    """The ConsumerGroups of all Clusters."""


def refuse_scaling(group: ConsumerGroup, scaling: Scaling, scale: TargetScale, scalers: Scalers) -> Refusal | None:
    """Refuse to scale a target that an autoscaler or an older ConsumerGroup scales, or that a reset has scaled down."""
    target = scaling.target
    before = scale.before
    if before is not None and not before.gave_up:
        problem = f"{named(target)} is scaled down for the reset {before.reset} of the ConsumerGroup {before.group}"
        return Refusal(TARGET_BUSY, problem)
    allowed = "remove spec.scaling.lagThreshold"
    autoscaler = _autoscaler_of(target, scalers.autoscalers)
    if autoscaler is not None:
        problem = f"{named(target)} is scaled by the HorizontalPodAutoscaler {autoscaler}"
        return Refusal(
            RESOURCE_CONFLICT, f"{problem}; {allowed}, or delete the autoscaler and the object that creates it"
        )
    first = min(_rivals(target, scalers.groups), default=None)
    if first is not None and first[1] != group.metadata.name:
        problem = f"{named(target)} is scaled by the ConsumerGroup {first[1]}, which is older"
        return Refusal(RESOURCE_CONFLICT, f"{problem}; {allowed}, or name another target")
    return None


def _autoscaler_of(target: ScaleTarget, autoscalers: Iterable[Json]) -> str | None:
    for each in autoscalers:
        about = each["spec"]["scaleTargetRef"]
        if (about["kind"], about["name"]) == (target.kind, target.name):
            return str(each["metadata"]["name"])
    return None


def _rivals(target: ScaleTarget, groups: Iterable[Json]) -> Iterator[tuple[str, str]]:
    """Yield creation time and name of each ConsumerGroup that scales the target by lag and is not being deleted."""
    for each in groups:
        meta, scaling = each["metadata"], each["spec"].get("scaling") or {}
        about = scaling.get("target") or {}
        is_target = (about.get("kind", "Deployment"), about.get("name")) == (target.kind, target.name)
        if is_target and scaling.get("lagThreshold") is not None and "deletionTimestamp" not in meta:
            yield meta["creationTimestamp"], meta["name"]
