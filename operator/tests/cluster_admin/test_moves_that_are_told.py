"""Moves of replicas as brokers tell them: one of them may know of a move, and another not yet."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kafka.errors import KafkaConnectionError, NodeNotReadyError

from barnabas_operator.kafka.reassignments import reassignments
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves

WRITER, OTHER = 1, 3
PARTITION = SimpleNamespace(partition_index=0, replicas=[1, 2, 3], removing_replicas=[1])
ON_ITS_WAY = SimpleNamespace(name="flights", partitions=[PARTITION])


class Manager:
    """Of brokers of which only the one that was told of a move knows it yet."""

    def __init__(self) -> None:
        self._backoff: dict[int, object] = {}
        self.is_writer_gone = False

    def run(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    def send(self, _request: object, node_id: int | None = None) -> Any:
        if node_id == WRITER and self.is_writer_gone:
            raise KafkaConnectionError("it has died")
        return SimpleNamespace(error_code=0, topics=[ON_ITS_WAY] if node_id == WRITER else [])

    def least_loaded_node(self) -> int:
        return OTHER


def client(controller_id: int | None = WRITER) -> Any:
    return SimpleNamespace(_manager=Manager(), _controller_id=controller_id, _refresh_controller_id=nobody)


def nobody(_timeout_ms: int) -> int:
    raise NodeNotReadyError("controller")


def test_a_move_is_known_at_once_and_is_not_called_off_by_who_asks_another_broker() -> None:
    moving = reassignments(client())
    assert moving == {"flights": {0: (2, 3)}}
    topic = TopicState("id", ((1, 2, 3),), {}, moving["flights"])
    state = ClusterState(dict.fromkeys((1, 2, 3)), {"flights": topic})
    assert ReplicaMoves(state).of_topic("flights", 2) is None


def test_a_client_that_has_written_nothing_yet_asks_who_is_the_controller() -> None:
    """It may be new after a round that failed, and another one had sent the move just before."""
    new = client(None)
    new._refresh_controller_id = lambda _timeout_ms: WRITER
    assert reassignments(new) == {"flights": {0: (2, 3)}}
    assert new._controller_id == WRITER, "the library sends changes to it, too"


def test_any_broker_is_asked_where_there_is_no_controller_and_where_the_writer_is_gone() -> None:
    assert reassignments(client(None)) == {}
    gone = client()
    gone._manager.is_writer_gone = True
    assert reassignments(gone) == {}
    gone._manager.is_writer_gone, gone._manager._backoff = False, {WRITER: ()}
    assert reassignments(gone) == {}, "its connection failed just now"
