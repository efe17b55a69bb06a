"""The reading of a Cluster, the checks that refuse changes to a running one, and its metadata level and claims.

Brokers that do not support a finalized level of `barnabas.metadata.version` cannot start. So the operator raises the
level only after a rolling restart has ended, and never lowers it.

Claims are compared with the declared volumes. A broker cannot start while one of its claims is unbound. So the operator
creates the claims of added volumes while the broker runs, and restarts the broker once the claims are bound. A claim
that is bound only when a pod uses it is left to the StatefulSet and delays no restart.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_operator.planning.brokers.broker_security import refuse_passing_port, reported_stage
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, BrokerClaim, BrokerPod, PodsState, named
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INVALID_CONFIG, INVALID_SPEC, NOT_SUPPORTED, Refusal
from barnabas_operator.planning.object_names import claim_name
from barnabas_operator.resources.cluster import Cluster, Storage, Volume
from barnabas_operator.resources.kind import Json, quantity_value
from barnabas_operator.resources.schema_check import InvalidResource, readable_part, resource_of


class Supported(NamedTuple):
    """The lowest and the highest level of `barnabas.metadata.version` that a broker supports, both inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class RaiseMetadataVersion:
    """The step that raises the finalized level for all brokers."""

    before: int
    after: int

    def __str__(self) -> str:
        """Return a text for messages that names the old and the new level."""
        return f"raise {METADATA_LEVEL} from {self.before} to {self.after}"


def metadata_version_of(state: ClusterState | None) -> int | None:
    """Return the finalized level, or None if no broker has reported it."""
    return state.metadata_versions.finalized if state is not None and state.metadata_versions is not None else None


def reported_metadata_version(cluster: Cluster, state: ClusterState | None) -> int | None:
    """Return the finalized level for the status, or the last reported level while no broker answers."""
    before = cluster.status.metadata_version if cluster.status is not None else None
    return metadata_version_of(state) or before


def may_raise(cluster: Cluster, brokers: Sequence[BrokerView], state: ClusterState) -> bool:
    """True if a higher level may be finalized now, so that brokers must be asked for their supported levels.

    The result is False for a paused Cluster, and while a broker has to restart or is not ready, or a replica is out of
    sync.
    """
    versions, pinned = state.metadata_versions, cluster.spec.metadata_version
    if versions is None or cluster.spec.pause:
        return False
    wanted = versions.offered if pinned is None else pinned
    return wanted > versions.finalized and _is_rolled(brokers, state)


def _is_rolled(brokers: Sequence[BrokerView], state: ClusterState) -> bool:
    is_calm = not state.troubles and bool(brokers)
    return is_calm and all(_is_as_wanted(broker) and broker.broker_id in state.racks for broker in brokers)


def _is_as_wanted(broker: BrokerView) -> bool:
    is_to_end = broker.is_changed or broker.lacks_volume or broker.ending
    return broker.is_running and broker.is_ready and not is_to_end


def next_version(
    cluster: Cluster, state: ClusterState, supported: Mapping[int, Supported]
) -> RaiseMetadataVersion | Refusal | None:
    """Return the step that raises the level to the pinned level, or else to the highest level that all brokers support.

    A pinned level that a live broker does not support is refused. The result is None if the level is high enough, or if
    `supported` does not contain every live broker yet.
    """
    versions, pinned = state.metadata_versions, cluster.spec.metadata_version
    if versions is None or not state.racks or not supported.keys() >= state.racks.keys():
        return None
    least = min(state.racks, key=lambda broker: supported[broker].highest)
    highest = supported[least].highest
    if pinned is not None and pinned > highest:
        why = f"broker {least} supports no higher version; change spec.brokers.image, or remove spec.metadataVersion"
        allowed = f"allowed: {versions.finalized} to {highest}"
        return Refusal(NOT_SUPPORTED, f"spec.metadataVersion is {pinned}; {allowed}; {why}")
    wanted = highest if pinned is None else pinned
    return RaiseMetadataVersion(versions.finalized, wanted) if wanted > versions.finalized else None


def refuse_older_image(cluster: Cluster, state: ClusterState | None, running: str, released: str) -> Refusal | None:
    """Refuse an update to the chart's image `released` if that image does not support the finalized level.

    Brokers with that image could not start. `running` is the image that the brokers run now. An image that
    `spec.brokers.image` names is not checked.
    """
    finalized = reported_metadata_version(cluster, state)
    if cluster.spec.brokers.image or running in ("", released) or (finalized or 0) <= METADATA_LEVEL_MAX:
        return None
    is_so = f"brokerImage is {released}, whose brokers support {METADATA_LEVEL} up to {METADATA_LEVEL_MAX}"
    allowed = f"allowed: an image that supports {finalized}, the level that the brokers have finalized"
    return Refusal(
        NOT_SUPPORTED, f"{is_so}; {allowed}; the brokers keep the image {running} until the chart is upgraded again"
    )


def refuse_lower(cluster: Cluster, finalized: int | None) -> Refusal | None:
    """Refuse a pinned level below `finalized`, the level that the brokers have finalized."""
    pinned = cluster.spec.metadata_version
    if pinned is None or finalized is None or pinned >= finalized:
        return None
    is_so = f"spec.metadataVersion is {pinned}; allowed: {finalized} or more, or no value"
    why = "the brokers have finalized a higher level, and the operator never lowers the level"
    how = f"kafka-features.sh downgrade --feature {METADATA_LEVEL}={pinned}"
    way_back = (
        f"to lower the level, set spec.pause: true, run {how}, "
        "then set spec.metadataVersion and spec.pause: false in one step"
    )
    return Refusal(NOT_SUPPORTED, f"{is_so}: {why}; {way_back}")


ChangeCheck = Callable[[Cluster, Cluster], Refusal | None]


def refuse_change(before: Cluster, after: Cluster, *, in_pods: bool = False) -> Refusal | None:
    """Return the first reason to refuse a change to a Cluster, or None if the change is allowed.

    If the brokers run in pods (`in_pods`), `refuse_disks` checks changes to volumes instead.
    """
    objections = (check(before, after) for check in (CHECKS_IN_PODS if in_pods else CHECKS))
    return next((objection for objection in objections if objection is not None), None)


def refuse_while_running(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse a change to TLS or authentication of local brokers, because all brokers would have to restart at once."""
    for was, now in zip(before.spec.listeners, after.spec.listeners, strict=False):
        for field, one, other in (
            ("tls", was.tls, now.tls),
            ("authentication", was.authentication, now.authentication),
        ):
            if one != other:
                message = f"spec.listeners[0].{field} has changed, but must not change while `barnabas up` runs"
                return Refusal(
                    NOT_SUPPORTED, f"{message}; stop `barnabas up`, and start `barnabas up` with the new manifest"
                )
    return None


def same_cluster(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse another Cluster name, because the data directory belongs to the Cluster with the old name."""
    if before.metadata.name == after.metadata.name:
        return None
    message = f"the data directory belongs to the Cluster {before.metadata.name}, not to {after.metadata.name}"
    return Refusal(NOT_SUPPORTED, f"{message}; choose another directory with --data-dir")


def no_volume_removed(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse the removal of a volume, because the partitions on the volume would be lost."""
    kept = {volume.id for volume in after.spec.storage.volumes}
    gone = [volume.id for volume in before.spec.storage.volumes if volume.id not in kept]
    if not gone:
        return None
    listed = ", ".join(map(str, gone))
    message = f"Removing volumes is not supported: spec.storage.volumes lacks the id {listed}"
    return Refusal(NOT_SUPPORTED, f"{message}; declare the missing volumes again")


def same_storage_class(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse another storage class for a volume, because existing claims cannot change their class."""
    for index, (was, volume) in enumerate(_volumes_of_both(before, after)):
        if volume.storage_class != was.storage_class:
            field = f"spec.storage.volumes[{index}].storageClass"
            now, allowed = volume.storage_class or "missing", was.storage_class or "no value"
            return Refusal(
                NOT_SUPPORTED,
                f"{field} is {now}; allowed: {allowed}, because existing claims cannot change their storage class",
            )
    return None


def _volumes_of_both(before: Cluster, after: Cluster) -> Iterator[tuple[Volume, Volume]]:
    had = {volume.id: volume for volume in before.spec.storage.volumes}
    return ((had[volume.id], volume) for volume in after.spec.storage.volumes if volume.id in had)


def no_lower_metadata_version(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse a change of `spec.metadataVersion` to a version below the version in the status.

    A paused Cluster is not checked, because its status may be outdated.
    """
    if before.status is None or before.spec.pause or after.spec.metadata_version == before.spec.metadata_version:
        return None
    return refuse_lower(after, before.status.metadata_version)


def leaves_passing_port(before: Cluster, after: Cluster) -> Refusal | None:
    """Refuse a listener on the port that brokers need while security is being turned on or off."""
    return refuse_passing_port(after, reported_stage(before))


CHECKS: Final[tuple[ChangeCheck, ...]] = (same_cluster, no_volume_removed, no_lower_metadata_version)
CHECKS_IN_PODS: Final[tuple[ChangeCheck, ...]] = (same_cluster, no_lower_metadata_version, leaves_passing_port)


def read_cluster(body: Json) -> tuple[Cluster, Refusal | None]:
    """Return the Cluster and, if its spec is invalid, a Refusal; spec fields that cannot be read are left out."""
    try:
        cluster = resource_of(Cluster, body)
    except InvalidResource as error:
        return readable_part(Cluster, body), Refusal(INVALID_SPEC, str(error))
    problems = [message for _, message in pod_problems(cluster)]
    return cluster, Refusal(INVALID_CONFIG, "; ".join(problems)) if problems else None


def why_left(cluster: Cluster, problem: Refusal | None) -> str:
    """Return a message for the status of the Cluster's resources: why the Cluster is not reconciled, and what to do."""
    name = cluster.metadata.name
    if problem is None:
        return f"Cluster {name} is paused; to end the pause, set spec.pause of the Cluster to false"
    return f"Cluster {name} has a problem that must be fixed first: {problem.message}"


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


def ungrown(name: str, asked: str, error: str) -> Refusal:
    """Return the Refusal to report if Kubernetes rejects a claim's new size `asked`; `error` is the error message."""
    message = f"the claim {name} cannot grow to {asked}: {error}"
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
