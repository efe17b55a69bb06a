"""Disks that are there and disks that are declared: which claims are to grow, and what cannot be. Pure."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from msgspec.structs import replace

from barnabas_operator.planning.cluster_checks import refuse_change
from barnabas_operator.planning.object_names import claim_name, volume_of
from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.resources.cluster import Cluster, Storage, Volume
from barnabas_operator.resources.quantity import quantity_value


def same_disks(cluster: Cluster, volumes: Iterable[Volume]) -> bool:
    """Whether these are the declared ones, each with the size that is declared."""
    return _sizes(volumes) == _sizes(cluster.spec.storage.volumes)


def _sizes(volumes: Iterable[Volume]) -> dict[int, Decimal]:
    return {volume.id: quantity_value(volume.size) for volume in volumes}


def refuse_disks(cluster: Cluster, volumes: Iterable[Volume], claims: Iterable[str]) -> Refusal | None:
    """Why the brokers cannot have the declared disks: those of their pods, or claims by their names, would be left.

    The API server and the webhook refuse such a change; this is for one that neither of them saw.
    """
    there = {volume.id: volume for volume in volumes}
    declared = {volume.id for volume in cluster.spec.storage.volumes}
    claimed = {volume_of(claim, cluster.metadata.name) for claim in claims}
    left = [Volume(id=each) for each in claimed if each is not None and each not in declared | there.keys()]
    storage = Storage(volumes=(*there.values(), *left))
    return refuse_change(replace(cluster, spec=replace(cluster.spec, storage=storage)), cluster, in_pods=True)


def claims_to_grow(cluster: Cluster, claims: Mapping[str, str]) -> dict[str, str]:
    """What each claim that is too small shall ask for, by its name; `claims` has what each asks for now."""
    sizes = {claim_name(volume.id): str(volume.size) for volume in cluster.spec.storage.volumes}
    return {
        name: size
        for name, asked in claims.items()
        for template, size in sizes.items()
        if name.startswith(f"{template}-") and quantity_value(asked) < quantity_value(size)
    }


def claims_to_erase(cluster: Cluster, claims: Iterable[str]) -> list[str]:
    """Those that go with the Cluster, by their names: all of its own, or those of disks with `deleteClaim`."""
    erased = {volume.id for volume in cluster.spec.storage.volumes if volume.delete_claim}
    volumes = {claim: volume_of(claim, cluster.metadata.name) for claim in claims}
    erases_all = cluster.spec.deletion_policy == "Delete"
    return [claim for claim, volume in volumes.items() if volume is not None and (erases_all or volume in erased)]
