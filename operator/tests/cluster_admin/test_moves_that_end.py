"""The state gathered while a move of replicas begins or ends: the planner never counts too many replicas."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin import ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka import cluster_admin
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.topics.reconcile_plan import plan_evacuation
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves

WRITER, BEHIND = 1, 3
BEFORE, DURING, AFTER = range(3)
"""Times of the move of a partition from the brokers 1 and 4 to the brokers 1 and 2."""
REPLICAS = {BEFORE: (1, 4), DURING: (1, 2, 4), AFTER: (1, 2)}
IN_SYNC = {BEFORE: (1, 4), DURING: (1, 4), AFTER: (1, 2)}
DEFAULTS = ("num.partitions", "default.replication.factor", "min.insync.replicas")
ID = UUID(int=7)


class Brokers:
    """`when` has the times that the broker of the moves reports, one by one; other brokers lag behind."""

    def __init__(self, when: Sequence[int]) -> None:
        self._when = list(when)
        self.mover, self.failing = WRITER, frozenset[int]()

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    def least_loaded_node(self) -> int:
        return BEHIND

    def send(self, request: object, node_id: int | None = None) -> Any:
        when = self.seen_by(node_id)
        if isinstance(request, MetadataRequest):
            return SimpleNamespace(topics=[SimpleNamespace(to_dict=lambda: topic(when))])
        assert isinstance(request, ListPartitionReassignmentsRequest)
        going = SimpleNamespace(partition_index=0, replicas=REPLICAS[when], removing_replicas=(4,))
        moves = [SimpleNamespace(name="flights", partitions=[going])] if when == DURING else []
        return SimpleNamespace(error_code=0, topics=moves)

    def seen_by(self, node_id: int | None) -> int:
        if node_id != WRITER:
            return DURING
        return self._when.pop(0) if len(self._when) > 1 else self._when[0]


class Client:
    """The part of the library's client that is needed to gather a state."""

    def __init__(self, brokers: Brokers) -> None:
        self.connections = brokers

    def ask(self, request: object, broker_id: int | None = None) -> Any:
        return self.connections.send(request, broker_id)

    def meet(self, _broker_ids: Iterable[int]) -> None:
        """Do nothing: the client knows all brokers."""

    def describe_cluster(self) -> dict[str, Any]:
        brokers = [{"broker_id": each, "rack": None, "is_fenced": False} for each in range(5)]
        return {"controller_id": WRITER, "cluster_id": "c", "brokers": brokers}

    def describe_topics(self) -> list[dict[str, Any]]:
        return [topic(self.connections.seen_by(None))]

    def describe_configs(self, asked: Sequence[Any], **_how: object) -> dict[str, Any]:
        if asked[0].name == "flights":
            return {"topic": {"flights": {"min.insync.replicas": {"value": "1"}}}}
        return {"broker": {each.name: {name: {"value": "1"} for name in DEFAULTS} for each in asked}}

    def describe_features(self) -> dict[str, Any]:
        return {}


def topic(when: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "replica_nodes": REPLICAS[when], "isr_nodes": IN_SYNC[when], "leader_id": 1}
    return {"name": "flights", "error_code": 0, "topic_id": str(ID), "partitions": [partition]}


def look(monkeypatch: pytest.MonkeyPatch, *when: int) -> ClusterState:
    client = Client(Brokers(when))
    monkeypatch.setattr(cluster_admin, "connected_client", lambda *_how: client)
    return ClusterAdmin("any:1", SystemClock()).cluster_state()


@pytest.mark.parametrize("when", [(DURING, DURING, AFTER), (DURING, AFTER), (DURING,), (AFTER,)])
def test_a_move_that_ends_while_the_state_is_gathered_leaves_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, when: tuple[int, ...]
) -> None:
    state = look(monkeypatch, *when)
    assert state.topics["flights"].targets == ((1, 2),)
    assert plan_evacuation((), state.with_brokers(4), {}) == (), "the broker 4 has no replica when the move is done"
    assert ReplicaMoves(state).of_topic("flights", 2) is None


def test_a_move_that_begins_while_the_state_is_gathered_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(monkeypatch, BEFORE, DURING).topics["flights"].targets == ((1, 2),)


def test_topics_and_moves_are_read_from_the_same_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    state = look(monkeypatch, AFTER)
    assert (state.topics["flights"].partitions, state.topics["flights"].moving) == (((1, 2),), {})
