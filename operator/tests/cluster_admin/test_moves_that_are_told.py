"""Moves of replicas as brokers report them: one broker may know of a move before another does."""

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

from kafka.errors import KafkaConnectionError

from barnabas_operator.kafka.cluster_admin import reassignments
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves

WRITER, OTHER = 1, 3
PARTITION = SimpleNamespace(partition_index=0, replicas=[1, 2, 3], removing_replicas=[1])
ON_ITS_WAY = SimpleNamespace(name="flights", partitions=[PARTITION])


class Client:
    """A client of brokers of which only the one that received the request knows the move."""

    def __init__(
        self, mover: int | None = WRITER, failing: Collection[int] = (), *, is_mover_gone: bool = False
    ) -> None:
        self.connections, self.mover, self.failing = self, mover, failing
        self._is_mover_gone = is_mover_gone

    def run(self, call: Callable[[], Any]) -> Any:
        return call()

    def ask(self, _request: object, broker_id: int | None = None) -> Any:
        if broker_id == WRITER and self._is_mover_gone:
            raise KafkaConnectionError("it has died")
        return SimpleNamespace(error_code=0, topics=[ON_ITS_WAY] if broker_id == WRITER else [])

    def least_loaded_node(self) -> int:
        return OTHER


def test_a_move_is_read_from_the_broker_that_received_it_and_is_not_cancelled() -> None:
    moving = reassignments(Client())
    assert moving == {"flights": {0: (2, 3)}}
    topic = TopicState("id", ((1, 2, 3),), {}, moving["flights"])
    state = ClusterState(dict.fromkeys((1, 2, 3)), {"flights": topic})
    assert ReplicaMoves(state).of_topic("flights", 2) is None


def test_any_broker_is_asked_for_moves_without_a_controller_or_if_it_is_unreachable() -> None:
    assert reassignments(Client(None)) == {}
    assert reassignments(Client(is_mover_gone=True)) == {}
    assert reassignments(Client(failing={WRITER})) == {}, "its connection failed just now"
