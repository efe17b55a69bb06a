"""The brokers that restart together: brokers of one rack that share no partition."""

from collections.abc import Iterable, Sequence

from barnabas_operator.planning.brokers.broker_steps import BrokerView, RestartContext, fully_replicated
from barnabas_operator.planning.cluster_state import ClusterState


def restart_batch(first: int, brokers: Sequence[BrokerView], state: ClusterState | None, count_max: int) -> list[int]:
    """Return the ids of the brokers to restart together: `first`, and up to `count_max` - 1 others.

    The others are brokers with outdated settings. Each partition loses at most one replica, as when brokers restart one
    by one. The controller is never one of the others, because it restarts last. A broker restarts alone if it has no
    rack or is not ready, and while replicas move or volumes are added.
    """
    batch = [first]
    grows = any(broker.lacks_volume for broker in brokers)
    if state is None or state.is_moving or grows or not _is_ready(first, brokers):
        return batch
    for number in _companions(first, brokers, state):
        if len(batch) < count_max and _shares_nothing(number, batch, state):
            batch.append(number)
    return batch


def _is_ready(first: int, brokers: Sequence[BrokerView]) -> bool:
    """True if the broker `first` is ready. If not, it restarts alone, because its partitions already lack a replica."""
    return any(broker.broker_id == first and broker.is_ready for broker in brokers)


def _companions(first: int, brokers: Sequence[BrokerView], state: ClusterState) -> Iterable[int]:
    rack = state.racks.get(first)
    changed = (broker.broker_id for broker in brokers if broker.is_changed and broker.broker_id != first)
    return [
        number
        for number in changed
        if rack is not None
        and state.racks.get(number) == rack
        and number != state.controller_id
        and fully_replicated(number, RestartContext(brokers, state)) is None
    ]


def _shares_nothing(number: int, batch: Iterable[int], state: ClusterState) -> bool:
    others = frozenset(batch)
    rows = (row for topic in state.topics.values() for row in topic.partitions)
    return not any(number in row and not others.isdisjoint(row) for row in rows)
