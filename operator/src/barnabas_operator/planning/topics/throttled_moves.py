"""The replicas that brokers throttle during a reassignment (KIP-73).

Brokers throttle only the replicas in a topic's throttle configs, so that replicas which were down catch up at full
speed.
"""

from collections.abc import Iterable, Iterator, Mapping

from barnabas_operator.planning.brokers.dynamic_configs import THROTTLES
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds, TopicState
from barnabas_operator.planning.configs import FOLLOWERS, LEADERS, THROTTLED
from barnabas_operator.planning.topics.topic_steps import AlterConfigs, MoveReplicas
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic


def is_throttled(cluster: Cluster) -> bool:
    """True if the Cluster declares a throttle rate, so that the operator sets the throttle configs of topics."""
    return any(cluster.spec.config.get(rate) is not None for rate in THROTTLES)


def throttles(topics: Iterable[Topic], begin: Iterable[MoveReplicas], state: ClusterState) -> Iterator[AlterConfigs]:
    """Yield, for each topic, the change after which the topic's throttle configs list exactly its moving replicas.

    Topics whose Topic resource declares throttle configs are left alone.
    """
    declared = {topic.topic_name for topic in topics if not topic.spec.config.keys().isdisjoint(THROTTLED)}
    beginning = {move.topic: move.assignments for move in begin}
    for name, topic in sorted(state.topics.items()):
        if name not in declared:
            wanted = _lists({**topic.moving, **beginning.get(name, {})}, topic)
            changes = {key: text for key, text in wanted.items() if topic.overrides.get(key) != text}
            if changes:
                yield AlterConfigs(name, changes)


def _lists(moves: Mapping[int, ReplicaIds], topic: TopicState) -> dict[str, str | None]:
    """Return the throttle configs: `LEADERS` lists all current and new replicas, `FOLLOWERS` all new replicas.

    The value of a config is None if it lists no replica. The values stay the same until a move has ended.
    """
    rows = enumerate(topic.partitions)
    senders = {number: tuple(sorted({*row, *moves[number]})) for number, row in rows if number in moves}
    return {LEADERS: _listed(senders), FOLLOWERS: _listed({number: moves[number] for number in senders})}


def _listed(rows: Mapping[int, ReplicaIds]) -> str | None:
    return ",".join(f"{number}:{broker}" for number, row in sorted(rows.items()) for broker in row) or None
