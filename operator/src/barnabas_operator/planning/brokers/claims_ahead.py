"""The claims that must exist before a broker restarts with more volumes, and the claims that were never bound.

A broker cannot start while one of its claims is unbound. So the operator creates the new claims while the broker runs,
and restarts the broker once the claims are bound. A claim that is bound only when a pod uses the claim is left to the
StatefulSet and delays no restart.
"""

from typing import Final

from barnabas_operator.planning.brokers.broker_claims import BrokerClaim
from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState
from barnabas_operator.planning.brokers.storage_classes import StorageClasses
from barnabas_operator.planning.object_names import claim_name
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster, Volume
from barnabas_operator.resources.quantity import quantity_value

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
