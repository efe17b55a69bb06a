"""The level of `barnabas.metadata.version` that the brokers finalize next. Pure.

A level is a form of the metadata that older brokers cannot read: once it is finalized, they do not start. So it is
raised when a roll is over, and never lowered here.
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
    """The lowest and highest level that a broker supports, both inclusive."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class RaiseMetadataVersion:
    """The step that raises the level for all brokers; it is never lowered again."""

    before: int
    after: int

    def __str__(self) -> str:
        """Return the step as messages name it."""
        return f"raise {METADATA_LEVEL} from {self.before} to {self.after}"


def metadata_version_of(state: ClusterState | None) -> int | None:
    """Return the finalized level; None if no broker has reported it."""
    return state.metadata_versions.finalized if state is not None and state.metadata_versions is not None else None


def reported_metadata_version(cluster: Cluster, state: ClusterState | None) -> int | None:
    """Return the finalized level for the status, which keeps the last one while no broker answers."""
    before = cluster.status.metadata_version if cluster.status is not None else None
    return metadata_version_of(state) or before


def may_raise(cluster: Cluster, brokers: Sequence[BrokerView], state: ClusterState) -> bool:
    """True if each broker must be asked for its supported levels: a higher one is wanted, and the roll is over.

    `brokers` are all that have a place. As long as one has to restart, is away, or lacks records that others have, the
    brokers can return to the previous image.
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
    """Return the step to the pinned level, or to the highest that all brokers support; None if there is none.

    `supported` has the brokers that reported it. The level stays unless all live brokers have.
    """
    versions, pinned = state.metadata_versions, cluster.spec.metadata_version
    if versions is None or not state.racks or not supported.keys() >= state.racks.keys():
        return None
    least = min(state.racks, key=lambda broker: supported[broker].highest)
    highest = supported[least].highest
    if pinned is not None and pinned > highest:
        why = f"broker {least} supports no higher one: change spec.brokers.image, or leave spec.metadataVersion out"
        allowed = f"allowed: {versions.finalized} to {highest}"
        return Refusal(NOT_SUPPORTED, f"spec.metadataVersion is {pinned}; {allowed}; {why}")
    wanted = highest if pinned is None else pinned
    return RaiseMetadataVersion(versions.finalized, wanted) if wanted > versions.finalized else None


def refuse_older_image(cluster: Cluster, state: ClusterState | None, running: str, released: str) -> Refusal | None:
    """Refuse this release's image for brokers whose level it does not support, as they would not start again.

    `running` is the image that they have, `released` the one of the chart. Nobody knows what other images support.
    """
    finalized = reported_metadata_version(cluster, state)
    if cluster.spec.brokers.image or running in ("", released) or (finalized or 0) <= METADATA_LEVEL_MAX:
        return None
    is_so = f"brokerImage is {released}, whose brokers support {METADATA_LEVEL} up to {METADATA_LEVEL_MAX}"
    allowed = f"allowed: one that supports {finalized}, the level that the brokers have finalized"
    return Refusal(NOT_SUPPORTED, f"{is_so}; {allowed}. They keep {running}: upgrade the chart again")


def refuse_lower(cluster: Cluster, finalized: int | None) -> Refusal | None:
    """Refuse a pinned level below `finalized`, the level that the brokers have finalized."""
    pinned = cluster.spec.metadata_version
    if pinned is None or finalized is None or pinned >= finalized:
        return None
    is_so = f"spec.metadataVersion is {pinned}; allowed: {finalized} or more, or leave it out"
    why = "the brokers have finalized it, and the operator never lowers it"
    how = f"kafka-features.sh downgrade --feature {METADATA_LEVEL}={pinned}"
    way_back = (
        f"to go back set spec.pause: true, run {how}, then set spec.metadataVersion and spec.pause: false at once"
    )
    return Refusal(NOT_SUPPORTED, f"{is_so}: {why}; {way_back}")
