"""Disks that are there and disks that are declared: which claims are to grow, and what cannot be. Pure."""

from collections.abc import Iterable
from decimal import Decimal

from msgspec.structs import replace

from barnabas_operator.planning.broker_claims import BrokerClaim, named
from barnabas_operator.planning.cluster_checks import refuse_change
from barnabas_operator.planning.topic_checks import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, Storage, Volume
from barnabas_operator.resources.quantity import quantity_value


def same_disks(cluster: Cluster, volumes: Iterable[Volume]) -> bool:
    """Whether these are the declared ones, each with the size that is declared."""
    return _sizes(volumes) == _sizes(cluster.spec.storage.volumes)


def _sizes(volumes: Iterable[Volume]) -> dict[int, Decimal]:
    return {volume.id: quantity_value(volume.size) for volume in volumes}


def refuse_disks(cluster: Cluster, volumes: Iterable[Volume], claims: Iterable[BrokerClaim]) -> Refusal | None:
    """Why the brokers cannot have the declared disks: those of their pods, or claims, would be left.

    The API server and the webhook refuse such a change; this is for one that neither of them saw.
    """
    there = {volume.id: volume for volume in volumes}
    storage = Storage(volumes=tuple(there.values()))
    before = replace(cluster, spec=replace(cluster.spec, storage=storage))
    return refuse_change(before, cluster, in_pods=True) or _left_behind(cluster, claims)


def _left_behind(cluster: Cluster, claims: Iterable[BrokerClaim]) -> Refusal | None:
    """Of an earlier Cluster of this name there may be disks that nobody declares."""
    declared = {volume.id for volume in cluster.spec.storage.volumes}
    left = [claim for claim in claims if claim.volume_id not in declared and not claim.is_emptied]
    if not left:
        return None
    volume = min(claim.volume_id for claim in left)
    names = named([claim for claim in left if claim.volume_id == volume])
    message = f"spec.storage.volumes lacks the id {volume}, of which an earlier Cluster {cluster.metadata.name} left"
    allowed = f"allowed: declare the id {volume}, or delete these claims with what is on them"
    return Refusal(NOT_SUPPORTED, f"{message} claims: {names}; {allowed}")


def claims_to_grow(cluster: Cluster, claims: Iterable[BrokerClaim]) -> dict[str, str]:
    """What each claim that is too small shall ask for, by its name."""
    sizes = {volume.id: str(volume.size) for volume in cluster.spec.storage.volumes}
    return {
        claim.name: sizes[claim.volume_id]
        for claim in claims
        if claim.volume_id in sizes and quantity_value(claim.size) < quantity_value(sizes[claim.volume_id])
    }
