"""The PersistentVolumeClaims of a Cluster's brokers, and the decisions about keeping or deleting them."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from barnabas_operator.planning.brokers.claim_resize import Resize
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.resources.cluster import Cluster


class BrokerClaim(NamedTuple):
    """The PersistentVolumeClaim for one volume of one broker.

    `is_bound` is True if the claim has or had a volume, which may hold records. `is_emptied` is True if the broker held
    no replicas when it was removed. `is_ending` is True if the claim is being deleted; the records on the volume are
    lost when the broker's pod ends. `resize` is the progress of a resize. `version` is the claim's resource version.
    """

    name: str
    uid: str
    volume_id: int
    broker_id: int
    size: str
    storage_class: str | None = None
    is_emptied: bool = False
    is_ending: bool = False
    resize: Resize | None = None
    is_bound: bool = True
    version: str = ""


def brokers_claimed(claims: Iterable[BrokerClaim]) -> int:
    """Return 1 plus the highest broker id that has a claim.

    Claims that are being deleted, and claims of a broker that held no replicas when it was removed (`is_emptied`), do
    not count.
    """
    return max((claim.broker_id for claim in claims if not claim.is_emptied and not claim.is_ending), default=-1) + 1


def brokers_holding(state: ClusterState | None, count: int) -> int:
    """Return the number of brokers to keep: at least `count`, and enough for all registered brokers with replicas."""
    beyond = {broker for broker in state.registered if broker >= count} if state is not None else set()
    if state is None or not beyond:
        return count
    holders = {broker for topic in state.topics.values() for replicas in topic.partitions for broker in replicas}
    return max((broker + 1 for broker in beyond & holders), default=count)


def claims_to_empty(claims: Iterable[BrokerClaim], broker_id: int) -> list[BrokerClaim]:
    """Return the claims to mark as `is_emptied`, for a broker that holds no replicas and is about to be removed."""
    return [claim for claim in claims if claim.broker_id == broker_id and not claim.is_emptied]


def claims_in_use_again(claims: Iterable[BrokerClaim], places: int) -> list[BrokerClaim]:
    """Return the claims that are marked as `is_emptied` although their broker exists again.

    The ids of the existing brokers are the numbers below `places`.
    """
    return [claim for claim in claims if claim.is_emptied and claim.broker_id < places]


def claims_to_delete(
    cluster: Cluster, claims: Iterable[BrokerClaim], places: int, registered: Collection[int]
) -> list[BrokerClaim]:
    """Return the claims to delete: the emptied claims of removed brokers, for volumes with `deleteClaim`.

    The claims of a registered broker are kept, because it may have received replicas of a new topic before it stopped.
    """
    erased = _erased_volumes(cluster)
    gone = (each for each in claims if each.is_emptied and each.broker_id >= places)
    return [each for each in gone if each.volume_id in erased and each.broker_id not in registered]


def claims_to_erase(cluster: Cluster, claims: Iterable[BrokerClaim]) -> list[BrokerClaim]:
    """Return the claims to delete with the Cluster: all claims, or only those of volumes with `deleteClaim`."""
    if cluster.spec.deletion_policy == "Delete":
        return list(claims)
    erased = _erased_volumes(cluster)
    return [claim for claim in claims if claim.volume_id in erased]


def named(claims: Sequence[BrokerClaim]) -> str:
    """Return as text the alphabetically first name of the claims and, if there are more claims, how many."""
    first = min(claim.name for claim in claims)
    return first if len(claims) == 1 else f"{first} and {len(claims) - 1} more"


def _erased_volumes(cluster: Cluster) -> set[int]:
    return {volume.id for volume in cluster.spec.storage.volumes if volume.delete_claim}
