"""What a Cluster says of replicas that are on their way to other brokers. Pure."""

from collections.abc import Iterator

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.losses import named
from barnabas_operator.planning.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import Condition


def moves_under_way(cluster: Cluster, now: str, state: ClusterState | None) -> Iterator[Condition]:
    """A condition that is there only meanwhile; the Cluster is ready all the same. `now` in RFC 3339."""
    moving = {name: len(topic.moving) for name, topic in sorted(state.topics.items()) if topic.moving} if state else {}
    if moving:
        of_topics = named([f"{name} ({count})" for name, count in moving.items()])
        message = f"partitions are getting other replicas: {of_topics}"
        yield condition(cluster, REPLICAS_MOVING, "True", REPLICAS_MOVING, message, now)
