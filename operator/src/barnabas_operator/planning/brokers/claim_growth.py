"""The differences between existing claims and declared volumes: claims to grow, and changes to refuse."""

from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal

from msgspec.structs import replace

from barnabas_operator.planning.brokers.broker_claims import CANNOT_GROW, BrokerClaim, named
from barnabas_operator.planning.brokers.cluster_checks import no_volume_removed, same_storage_class
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, Storage, Volume
from barnabas_operator.resources.quantity import quantity_value


def same_disks(cluster: Cluster, volumes: Iterable[Volume]) -> bool:
    """True if `volumes` have the ids, sizes and storage classes that the Cluster declares."""
    return _kinds(volumes) == _kinds(cluster.spec.storage.volumes)


def _kinds(volumes: Iterable[Volume]) -> dict[int, tuple[Decimal, str | None]]:
    return {volume.id: (quantity_value(volume.size), volume.storage_class) for volume in volumes}


def refuse_disks(cluster: Cluster, volumes: Collection[Volume], claims: Iterable[BrokerClaim]) -> Refusal | None:
    """Refuse to remove or shrink a volume with records, or to change its storage class.

    A claim that somebody else has made larger than declared is no reason to refuse (`larger_claims`).

    `volumes` are the volumes before the change, and the Cluster declares the volumes after the change. A volume whose
    claims were never bound holds no records, so it can be removed or changed.
    """
    bound = [claim for claim in claims if claim.is_bound]
    with_records = {claim.volume_id for claim in bound}
    storage = Storage(volumes=tuple(volume for volume in volumes if volume.id in with_records))
    before = replace(cluster, spec=replace(cluster.spec, storage=storage))
    return (
        no_volume_removed(before, cluster)
        or same_storage_class(before, cluster)
        or _left_behind(cluster, bound)
        or refuse_smaller(cluster, volumes, bound)
    )


def refuse_smaller(cluster: Cluster, volumes: Collection[Volume], claims: Iterable[BrokerClaim]) -> Refusal | None:
    """Refuse to make a volume smaller than its smallest claim, because Kubernetes never shrinks a claim."""
    before = {volume.id: quantity_value(volume.size) for volume in volumes}
    for index, volume, of_volume in _volumes_with_claims(cluster, claims):
        least, size = min((claim.size for claim in of_volume), key=quantity_value), quantity_value(volume.size)
        if size < quantity_value(least) and size < before.get(volume.id, size):
            message = f"spec.storage.volumes[{index}].size is {volume.size}; allowed: {least} or more"
            return Refusal(NOT_SUPPORTED, f"{message}, because existing claims cannot shrink")
    return None


def larger_claims(cluster: Cluster, claims: Iterable[BrokerClaim]) -> list[BrokerClaim]:
    """Return the claims that are larger than their volume is declared, because somebody else has made them grow."""
    return [
        claim
        for _, volume, of_volume in _volumes_with_claims(cluster, claims)
        for claim in of_volume
        if quantity_value(claim.size) > quantity_value(volume.size)
    ]


def refuse_growth(cluster: Cluster, claims: Iterable[BrokerClaim], rigid: Collection[str]) -> Refusal | None:
    """Refuse a larger size for a claim whose storage class is in `rigid`, because its volumes cannot be expanded."""
    for index, volume, of_volume in _volumes_with_claims(cluster, claims):
        for claim in of_volume:
            if claim.storage_class in rigid and quantity_value(claim.size) < quantity_value(volume.size):
                message = f"spec.storage.volumes[{index}].size is {volume.size}; allowed: {claim.size}"
                why = (
                    f"because the storage class {claim.storage_class} of the claims does not set "
                    "allowVolumeExpansion to true"
                )
                return Refusal(CANNOT_GROW, f"{message}, {why}")
    return None


def ungrown(name: str, asked: str, said: str) -> Refusal:
    """Return the Refusal to report if Kubernetes rejects a claim's new size `asked`; `said` is the error message."""
    message = f"the claim {name} cannot grow to {asked}: {said}"
    allowed = (
        "set the volume's size back to the size of the claims, or set allowVolumeExpansion to true in the storage class"
    )
    return Refusal(CANNOT_GROW, f"{message}; {allowed}")


def _volumes_with_claims(
    cluster: Cluster, claims: Iterable[BrokerClaim]
) -> Iterator[tuple[int, Volume, list[BrokerClaim]]]:
    """Yield the index of each volume, the volume, and its claims in use; volumes without claims in use are skipped."""
    used = [claim for claim in claims if claim.is_bound and not claim.is_emptied]
    for index, volume in enumerate(cluster.spec.storage.volumes):
        of_volume = [claim for claim in used if claim.volume_id == volume.id]
        if of_volume:
            yield index, volume, of_volume


def _left_behind(cluster: Cluster, claims: Iterable[BrokerClaim]) -> Refusal | None:
    """Refuse a Cluster that does not declare the volume of a PersistentVolumeClaim that still holds records.

    An earlier Cluster of the same name may have left the claim.
    """
    declared = {volume.id for volume in cluster.spec.storage.volumes}
    left = [claim for claim in claims if claim.volume_id not in declared and not claim.is_emptied]
    if not left:
        return None
    volume = min(claim.volume_id for claim in left)
    names = named([claim for claim in left if claim.volume_id == volume])
    message = f"spec.storage.volumes lacks the id {volume}, but claims of that volume hold records: {names}"
    return Refusal(NOT_SUPPORTED, f"{message}; declare a volume with the id {volume}, or delete the claims")


def claims_to_grow(cluster: Cluster, claims: Iterable[BrokerClaim]) -> dict[str, str]:
    """Return, by claim name, the size to request for each bound claim that is smaller than its volume in the spec."""
    sizes = {volume.id: str(volume.size) for volume in cluster.spec.storage.volumes}
    return {
        claim.name: sizes[claim.volume_id]
        for claim in claims
        if claim.is_bound
        and claim.volume_id in sizes
        and quantity_value(claim.size) < quantity_value(sizes[claim.volume_id])
    }
