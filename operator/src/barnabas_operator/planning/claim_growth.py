"""Disks that are to grow: the claims that ask for less than the Cluster declares. Pure."""

from collections.abc import Mapping
from decimal import Decimal

from barnabas_operator.planning.object_names import claim_name
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.quantity import quantity_value


def claim_sizes(cluster: Cluster) -> dict[str, Decimal]:
    """Bytes by the name of the claim template."""
    return {claim_name(volume.id): quantity_value(volume.size) for volume in cluster.spec.storage.volumes}


def claims_to_grow(cluster: Cluster, claims: Mapping[str, str]) -> dict[str, str]:
    """What each claim that is too small shall ask for, by its name; `claims` has what each asks for now."""
    sizes = {claim_name(volume.id): str(volume.size) for volume in cluster.spec.storage.volumes}
    return {
        name: size
        for name, asked in claims.items()
        for template, size in sizes.items()
        if name.startswith(f"{template}-") and quantity_value(asked) < quantity_value(size)
    }
