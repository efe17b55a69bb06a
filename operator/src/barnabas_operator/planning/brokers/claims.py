"""The differences between existing claims and declared volumes, and the claims that must exist before a restart.

The claims that must exist before a broker restarts with more volumes, and the claims that were never bound. A
broker cannot start while one of its claims is unbound. So the operator creates the new claims while the broker
runs, and restarts the broker once the claims are bound. A claim that is bound only when a pod uses the claim is
left to the StatefulSet and delays no restart.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_operator.planning.brokers.cluster_checks import no_volume_removed, same_storage_class
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, BrokerClaim, BrokerPod, PodsState, named
from barnabas_operator.planning.conditions import NOT_SUPPORTED, Refusal
from barnabas_operator.planning.object_names import claim_name
from barnabas_operator.resources.cluster import Cluster, Storage, Volume
from barnabas_operator.resources.kind import Json
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


DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
LATE: Final = "WaitForFirstConsumer"


class StorageClass(NamedTuple):
    """A StorageClass.

    `is_late` is True if claims are bound only when a pod uses them. `can_grow` is True if volumes can be expanded.
    """

    is_late: bool
    can_grow: bool


class StorageClasses(NamedTuple):
    """The StorageClasses by name; `default` is the default class, or "" if there is none."""

    by_name: Mapping[str, StorageClass]
    default: str = ""

    def of(self, volume: Volume) -> str:
        """Return the name of the storage class for the claims of a volume, or "" if the claims get no class."""
        return self.default if volume.storage_class is None else volume.storage_class

    def gives_late(self, volume: Volume) -> bool:
        """True if the claims of a volume are bound only when a pod uses them."""
        found = self.by_name.get(self.of(volume))
        return found is not None and found.is_late

    def lacks(self, volume: Volume) -> bool:
        """True if a volume names a storage class that does not exist."""
        return bool(volume.storage_class) and volume.storage_class not in self.by_name

    def with_names(self, names: Iterable[str]) -> "StorageClasses":
        """Return a copy that also contains a class for each new name in `names`.

        An added class binds claims at once and cannot expand volumes.
        """
        return self._replace(by_name={**dict.fromkeys(names, StorageClass(False, False)), **self.by_name})

    @property
    def allowed(self) -> str:
        """The allowed values of `storageClass`, for a message."""
        return ", ".join(sorted(self.by_name)) or "no value, because Kubernetes has no StorageClass"


def storage_classes_of(found: Iterable[Json]) -> StorageClasses:
    """Return the StorageClasses; the newest of several default classes is the default, as in Kubernetes."""
    listed = sorted(found, key=lambda each: (each["metadata"].get("creationTimestamp", ""), each["metadata"]["name"]))
    defaults = [each["metadata"]["name"] for each in listed if _annotations(each).get(DEFAULT) == "true"]
    return StorageClasses({each["metadata"]["name"]: _class(each) for each in listed}, defaults[-1] if defaults else "")


def _class(found: Json) -> StorageClass:
    return StorageClass(found.get("volumeBindingMode") == LATE, bool(found.get("allowVolumeExpansion", False)))


def _annotations(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("annotations") or {}


def new_disks(cluster: Cluster, claims: Iterable[BrokerClaim]) -> Mapping[int, Volume]:
    """Return, by index in spec.storage.volumes, each volume that names a storage class and has no bound claim."""
    bound = {claim.volume_id for claim in claims if claim.is_bound}
    volumes = enumerate(cluster.spec.storage.volumes)
    return {index: volume for index, volume in volumes if volume.storage_class and volume.id not in bound}


def refuse_missing_class(cluster: Cluster, claims: Iterable[BrokerClaim], classes: StorageClasses) -> Refusal | None:
    """Refuse a new volume whose storage class does not exist."""
    for index, volume in new_disks(cluster, claims).items():
        if classes.lacks(volume):
            field = f"spec.storage.volumes[{index}].storageClass is {volume.storage_class}"
            return Refusal(NOT_SUPPORTED, f"{field}, but there is no such StorageClass; allowed: {classes.allowed}")
    return None


NOT_BOUND: Final = "ClaimNotBound"


def added_volumes(cluster: Cluster, pod: BrokerPod) -> list[Volume]:
    """Return the declared volumes that the spec of the pod does not contain yet."""
    return [volume for volume in cluster.spec.storage.volumes if claim_name(volume.id) not in pod.volumes]


def claims_to_make(cluster: Cluster, pods: PodsState, pod: BrokerPod, classes: StorageClasses) -> list[str]:
    """Return the names of the missing claims to create before a pod restarts with its added volumes.

    Claims that Kubernetes binds only when a pod uses them are left to the StatefulSet.
    """
    there = {claim.name for claim in pods.claims}
    wanted = (each for each in added_volumes(cluster, pod) if not classes.gives_late(each))
    names = (f"{claim_name(volume.id)}-{pod.name}" for volume in wanted)
    return [name for name in names if name not in there]


def refuse_restart(cluster: Cluster, pods: PodsState, pod: BrokerPod, classes: StorageClasses) -> Refusal | None:
    """Refuse to restart a pod before the claims of its added volumes are bound.

    A claim that Kubernetes binds only when a pod uses the claim does not prevent the restart.
    """
    bound = {claim.name for claim in pods.claims if claim.is_bound and not claim.is_ending}
    for volume in added_volumes(cluster, pod):
        name = f"{claim_name(volume.id)}-{pod.name}"
        if name not in bound and not classes.gives_late(volume):
            why = (
                f"there is no StorageClass {volume.storage_class}"
                if classes.lacks(volume)
                else "the claim has no volume yet"
            )
            message = f"broker {pod.broker_id} can restart only after the claim {name} is bound, but {why}"
            way_out = f"as long as the claim is not bound, volume {volume.id} can be changed or removed"
            return Refusal(NOT_BOUND, f"{message}; {way_out}")
    return None


def claims_to_discard(cluster: Cluster, pods: PodsState, classes: StorageClasses) -> list[BrokerClaim]:
    """Return the claims to delete because they were never bound and differ from the declared volumes."""
    never = (claim for claim in pods.claims if not (claim.is_bound or claim.is_ending))
    return [claim for claim in never if _is_outdated(cluster, pods, claim, classes)]


def _is_outdated(cluster: Cluster, pods: PodsState, claim: BrokerClaim, classes: StorageClasses) -> bool:
    """True if the claim differs from the declared volume, and the StatefulSet would not create the same claim again.

    While its claim template is outdated, the StatefulSet would create the same claim again.
    """
    template = next((volume for volume in pods.volumes if volume.id == claim.volume_id), None)
    volume = next((each for each in cluster.spec.storage.volumes if each.id == claim.volume_id), None)
    if volume is None:
        return template is None
    return (template is None or _alike(template, volume)) and _differs(claim, volume, classes)


def _alike(one: Volume, other: Volume) -> bool:
    return one.storage_class == other.storage_class and quantity_value(one.size) == quantity_value(other.size)


def _differs(claim: BrokerClaim, volume: Volume, classes: StorageClasses) -> bool:
    """True if an existing claim has another size or storage class than the volume in the spec.

    If the spec names no class, the claim should have the default class, which Kubernetes sets on the claim.
    """
    wanted = classes.of(volume)
    is_other = claim.storage_class is not None and claim.storage_class != wanted and (wanted or volume.storage_class)
    return bool(is_other) or quantity_value(claim.size) != quantity_value(volume.size)
