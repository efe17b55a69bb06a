"""Why a change of a running Cluster may be refused: it would leave data behind."""

from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.topic_checks import NOT_SUPPORTED, Refusal
from barnabas_operator.resources.cluster import Cluster

Check = Callable[[Cluster, Cluster], Refusal | None]


def refuse_change(before: Cluster, after: Cluster) -> Refusal | None:
    """The first objection, if there is any."""
    objections = (check(before, after) for check in CHECKS)
    return next((objection for objection in objections if objection is not None), None)


def same_cluster(before: Cluster, after: Cluster) -> Refusal | None:
    """The data belongs to the cluster that wrote it."""
    if before.metadata.name == after.metadata.name:
        return None
    message = f"The data is that of the Cluster {before.metadata.name}, not of {after.metadata.name}"
    return Refusal(NOT_SUPPORTED, f"{message}; allowed: another data directory")


def no_volume_removed(before: Cluster, after: Cluster) -> Refusal | None:
    """A disk that goes takes its partitions with it."""
    kept = {volume.id for volume in after.spec.storage.volumes}
    gone = [volume.id for volume in before.spec.storage.volumes if volume.id not in kept]
    if not gone:
        return None
    listed = ", ".join(map(str, gone))
    return Refusal(NOT_SUPPORTED, f"Removing volumes is not supported: spec.storage.volumes lacks the id {listed}")


CHECKS: Final[tuple[Check, ...]] = (same_cluster, no_volume_removed)
