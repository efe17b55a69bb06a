"""What a Cluster says of replicas that are on their way to other brokers, and of those that might go. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.disk_space import Partition
from barnabas_operator.planning.topics.lost_records import named
from barnabas_operator.planning.topics.rebalance import APPROVAL, APPROVED, Rebalance
from barnabas_operator.planning.topics.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import REBALANCE_PROPOSED, Condition

UNEVEN: Final = "BrokersUneven"


class PendingMoves(NamedTuple):
    """The partitions that wait for their turn to move, and the rebalance that is planned or under way.

    `is_rebalanced`: one that was asked for is done. `without_room` are those that no broker has room for,
    `refused` what brokers did not do, in words, of what no Topic is about.
    """

    waiting: int = 0
    rebalance: Rebalance | None = None
    is_rebalanced: bool = False
    without_room: tuple[Partition, ...] = ()
    refused: Sequence[str] = ()


def reassignment_conditions(
    cluster: Cluster, now: str, state: ClusterState | None, ahead: PendingMoves | None
) -> Iterator[Condition]:
    """Conditions that are there only meanwhile; the Cluster is ready all the same. `now` in RFC 3339."""
    moving = {name: len(topic.moving) for name, topic in sorted(state.topics.items()) if topic.moving} if state else {}
    waiting = ahead.waiting if ahead is not None else 0
    stays = f"{_lacking(ahead.without_room)}{_refused(ahead.refused)}" if ahead is not None else ""
    if moving or waiting or stays:
        of_topics = named([f"{name} ({count})" for name, count in moving.items()]) or "none yet"
        later = f"; {waiting} partitions wait for their turn" if waiting else ""
        message = f"partitions are moving to other replicas: {of_topics}{later}{stays}"
        yield condition(cluster, REPLICAS_MOVING, "True", REPLICAS_MOVING, message, now)
    if ahead is not None and ahead.rebalance is not None and not ahead.rebalance.is_approved:
        message = f"{_described(ahead.rebalance)}; to approve it: {_approval(cluster)}"
        yield condition(cluster, REBALANCE_PROPOSED, "True", UNEVEN, message, now)


def _lacking(without_room: Iterable[Partition]) -> str:
    """Those wait for people."""
    names = [f"{topic}-{number}" for topic, number in without_room]
    what_helps = "enlarge volumes, add brokers or delete records"
    return f"; no broker has room for {named(names)}: {what_helps}" if names else ""


def _refused(said: Sequence[str]) -> str:
    return "".join(f"; {each}" for each in said[:1]) + (f" and {len(said) - 1} more" if len(said) > 1 else "")


def _described(rebalance: Rebalance) -> str:
    brokers = ", ".join(map(str, rebalance.to_brokers))
    how_much = f"{rebalance.partitions} partitions ({rebalance.size_bytes} bytes)"
    return f"broker {brokers} holds less than the others: {how_much} can move there"


def _approval(cluster: Cluster) -> str:
    command = f"kubectl annotate clusters.barnabas.dev {cluster.metadata.name} {APPROVAL}={APPROVED}"
    return f"`{command}`, or spec.rebalance: Automatic"
