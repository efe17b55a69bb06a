"""The checks that refuse changes to a running Cluster."""

from collections.abc import Callable, Iterator
from typing import Final

from barnabas_operator.planning.brokers.metadata_version import refuse_lower
from barnabas_operator.planning.brokers.security_stages import refuse_passing_port, reported_stage
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster, Volume

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
