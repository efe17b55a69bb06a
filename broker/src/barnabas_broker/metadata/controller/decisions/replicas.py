"""The choice and validation of the replicas of new partitions."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from barnabas_broker.metadata.controller.decisions.cluster_view import ClusterView
from barnabas_broker.metadata.model import PartitionState
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.placement import assign_replicas, start_index_for_added

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""The maximum number of partitions that one request may create, as in Kafka."""


def check_partitions_added(added: int) -> None:
    """Raise ApiError(POLICY_VIOLATION) if one request creates more partitions than PARTITIONS_PER_REQUEST_MAX."""
    if added > PARTITIONS_PER_REQUEST_MAX:
        message = f"Excessively large number of partitions per request: {added}; at most {PARTITIONS_PER_REQUEST_MAX}."
        raise ApiError(ErrorCode.POLICY_VIOLATION, message)


def place(view: ClusterView, partitions: int, replication_factor: int, random: Random) -> list[PartitionState]:
    """Return the partitions of a new topic, placed from a random first broker with a random shift.

    Raises ApiError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    brokers = _candidates(view, replication_factor)
    start_index, shift = random.randrange(len(brokers)), random.randrange(len(brokers))
    rows = assign_replicas(brokers, partitions, replication_factor, start_index, shift, view.racks)
    return [initial_state(view, _with_a_live_one(view, row, number)) for number, row in enumerate(rows)]


def place_added(view: ClusterView, existing: Sequence[PartitionState], added: int) -> list[PartitionState]:
    """Return additional partitions of a topic.

    The round-robin assignment of replicas to brokers continues after the existing partitions. Raises
    ApiError(INVALID_REPLICATION_FACTOR) if there are too few brokers.
    """
    replication_factor = replication_factor_of(existing[0])
    brokers = _candidates(view, replication_factor)
    start_index = start_index_for_added(brokers, existing[0].replicas[0])
    rows = assign_replicas(
        brokers, added, replication_factor, start_index, start_index, view.racks, first_partition=len(existing)
    )
    return [initial_state(view, _with_a_live_one(view, row, number)) for number, row in enumerate(rows)]


def _with_a_live_one(view: ClusterView, replicas: list[int], number: int) -> list[int]:
    """Return the replicas; if none of them is alive, a live broker replaces the first replica."""
    live = view.live_brokers
    return replicas if any(broker in live for broker in replicas) else [live[number % len(live)], *replicas[1:]]


def _candidates(view: ClusterView, replication_factor: int) -> list[int]:
    """Return the brokers for new replicas: live brokers, or all registered brokers if too few are alive.

    Raises ApiError(INVALID_REPLICATION_FACTOR) if too few brokers are registered, or no broker is alive.
    """
    live, registered = list(view.live_brokers), list(view.racks)
    if replication_factor > len(registered) or not live:
        message = (
            f"Unable to replicate the partition {replication_factor} time(s): the replication factor must be at most "
            f"{len(registered)}, the number of registered brokers; {len(live)} of them are alive."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return live if replication_factor <= len(live) else registered


def replication_factor_of(state: PartitionState) -> int:
    """Return the replication factor of a partition, not counting replicas that a reassignment removes."""
    return len(state.replicas) - len(state.removing_replicas)


def check_assignment(view: ClusterView, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Raise ApiError(INVALID_REPLICA_ASSIGNMENT) for invalid replicas, or for a wrong number of replicas."""
    complaint = _complaint(view, replicas, replication_factor)
    if complaint is not None:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {complaint}")


def _complaint(view: ClusterView, replicas: Sequence[int], replication_factor: int | None) -> str | None:
    if not replicas:
        return "includes an empty replica list."
    unknown = [broker for broker in replicas if broker not in view.racks]
    if unknown:
        return f"includes broker {unknown[0]}, but no such broker is registered; the brokers are {list(view.racks)}."
    if len(set(replicas)) < len(replicas):
        return f"includes a broker more than once: {list(replicas)}."
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {replication_factor} replica(s)."
        )
    if not any(broker in replicas for broker in view.live_brokers):
        return f"gives a partition to {list(replicas)}; at least one of these brokers must be alive."
    return None


def initial_state(view: ClusterView, replicas: Iterable[int]) -> PartitionState:
    """Return a new partition: all live replicas are in sync, and the first of them leads."""
    placed = tuple(replicas)
    in_sync = tuple(broker for broker in placed if broker in view.live_brokers)
    return PartitionState(replicas=placed, leader=in_sync[0], leader_epoch=0, isr=in_sync)
