"""What a change of a Cluster's status is worth telling as Kubernetes Events. Pure."""

from collections.abc import Iterator
from typing import Final

from barnabas_operator.planning.brokers.broker_steps import ROLLING_PAUSED
from barnabas_operator.planning.brokers.metadata_version import METADATA_VERSION
from barnabas_operator.planning.conditions import PAUSED, told_before
from barnabas_operator.planning.kube_event import Said
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import READY, REBALANCE_PROPOSED, ROLLING, condition_of

METADATA_VERSION_RAISED: Final = "MetadataVersionRaised"
ROLLED: Final = "Rolled"


def cluster_events(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Of a Cluster with its new status; `before` is the one that it had, as JSON."""
    yield from _recovered(cluster, before)
    yield from _rolls(cluster, before)
    yield from _proposal(cluster, before)
    yield from _metadata_version(cluster, before)


def _recovered(cluster: Cluster, before: Json) -> Iterator[Said]:
    """That it is ready again, and what was the matter."""
    ready, was = condition_of(cluster.conditions, READY), told_before(before, READY)
    if ready is not None and ready.status == "True" and was.get("status", "True") != "True" and was["reason"] != PAUSED:
        yield "Normal", READY, f"is ready; it was not, for {was['reason']}: {was.get('message', '')}"


def _rolls(cluster: Cluster, before: Json) -> Iterator[Said]:
    """That brokers begin to restart, that this is paused, and that it is over."""
    rolling, was = condition_of(cluster.conditions, ROLLING), told_before(before, ROLLING)
    if rolling is None or _phase(rolling.status, rolling.reason) == _phase(was.get("status"), was.get("reason")):
        return
    yield "Normal", _phase(rolling.status, rolling.reason), rolling.message


def _phase(status: str | None, reason: str | None) -> str:
    if status != "True":
        return ROLLED
    return ROLLING_PAUSED if reason == ROLLING_PAUSED else ROLLING


def _proposal(cluster: Cluster, before: Json) -> Iterator[Said]:
    """Once, though its numbers change."""
    told = condition_of(cluster.conditions, REBALANCE_PROPOSED)
    if told is not None and not told_before(before, REBALANCE_PROPOSED):
        yield "Normal", REBALANCE_PROPOSED, told.message


def _metadata_version(cluster: Cluster, before: Json) -> Iterator[Said]:
    had = before.get("metadataVersion")
    has = cluster.status.metadata_version if cluster.status is not None else None
    if has is not None and had is not None and has > had:
        message = f"{METADATA_VERSION} from {had} to {has}: brokers that do not support it no longer start"
        yield "Normal", METADATA_VERSION_RAISED, message
