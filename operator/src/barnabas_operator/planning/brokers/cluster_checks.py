"""The reading of a Cluster, the checks that refuse changes to a running one, and the level of its metadata.

The level of `barnabas.metadata.version` that the brokers finalize next. Brokers that do not support a finalized
level cannot start. So the operator raises the level only after a rolling restart has ended, and never lowers the
level.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_operator.planning.brokers.broker_security import refuse_passing_port, reported_stage
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INVALID_CONFIG, INVALID_SPEC, NOT_SUPPORTED, Refusal
from barnabas_operator.resources.api_objects import InvalidResource, readable_part, resource_of
from barnabas_operator.resources.cluster import Cluster, Volume
from barnabas_operator.resources.kind import Json


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
