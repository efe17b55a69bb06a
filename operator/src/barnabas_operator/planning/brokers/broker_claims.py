"""The claims of a Cluster's disks, and the brokers that have a place because of what is on them. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from barnabas_operator.planning.brokers.claim_resize import Resize
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.resources.cluster import Cluster


class BrokerClaim(NamedTuple):
    """One disk of one broker: what it asks for, and its `storage_class`.

    `is_bound`: it has, or had, a volume, which may hold records. `version` is that of the object.
    `is_emptied`: its broker held nothing any more when it was removed. One that `is_ending` was deleted: it is
    lost with its records when its pod ends. `resize`: how far Kubernetes is with one that grows.
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
    """How many brokers there were, by their disks. Those that were removed in the ordinary way do not count."""
    return max((claim.broker_id for claim in claims if not claim.is_emptied and not claim.is_ending), default=-1) + 1


def brokers_holding(state: ClusterState | None, count: int) -> int:
    """How many brokers there have to be, beyond `count`, for all that hold replicas and never were unregistered.

    One that was removed in the ordinary way holds none.
    """
    beyond = {broker for broker in state.registered if broker >= count} if state is not None else set()
    if state is None or not beyond:
        return count
    holders = {broker for topic in state.topics.values() for replicas in topic.partitions for broker in replicas}
    return max((broker + 1 for broker in beyond & holders), default=count)


def claims_to_empty(claims: Iterable[BrokerClaim], broker_id: int) -> list[BrokerClaim]:
    """Those to mark when this broker is removed: nothing on them is needed any more."""
    return [claim for claim in claims if claim.broker_id == broker_id and not claim.is_emptied]


def claims_in_use_again(claims: Iterable[BrokerClaim], places: int) -> list[BrokerClaim]:
    """Those that are marked although their broker has a place again."""
    return [claim for claim in claims if claim.is_emptied and claim.broker_id < places]


def claims_to_delete(
    cluster: Cluster, claims: Iterable[BrokerClaim], places: int, registered: Collection[int]
) -> list[BrokerClaim]:
    """Of brokers that were removed in the ordinary way, the disks with `deleteClaim`.

    One that is still registered may have got a new topic's replica before it stopped: it has to come back for that.
    """
    erased = _erased_volumes(cluster)
    gone = (each for each in claims if each.is_emptied and each.broker_id >= places)
    return [each for each in gone if each.volume_id in erased and each.broker_id not in registered]


def claims_to_erase(cluster: Cluster, claims: Iterable[BrokerClaim]) -> list[BrokerClaim]:
    """Those that go with the Cluster: all of them, or those of disks with `deleteClaim`."""
    if cluster.spec.deletion_policy == "Delete":
        return list(claims)
    erased = _erased_volumes(cluster)
    return [claim for claim in claims if claim.volume_id in erased]


def named(claims: Sequence[BrokerClaim]) -> str:
    """The first by its name, and how many others there are."""
    first = min(claim.name for claim in claims)
    return first if len(claims) == 1 else f"{first} and {len(claims) - 1} more"


def _erased_volumes(cluster: Cluster) -> set[int]:
    return {volume.id for volume in cluster.spec.storage.volumes if volume.delete_claim}
