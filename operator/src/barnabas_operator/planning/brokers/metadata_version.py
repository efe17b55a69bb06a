"""The level of `barnabas.metadata.version` that the brokers finalize next.

Brokers that do not support a finalized level cannot start. So the operator raises the level only after a rolling
restart has ended, and never lowers the level.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas_core.metadata_level import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.refusal import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster


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
