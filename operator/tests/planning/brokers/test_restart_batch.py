"""Brokers of one rack restart together if no partition loses two replicas by it."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_operator.planning.brokers.broker_steps import BrokerView, restart_batch
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds, TopicState, Trouble

RACKS = {0: "a", 1: "b", 2: "a", 3: "b", 4: "a", 5: "b"}
ACROSS = ((0, 1), (2, 3), (4, 5))


def state(
    *partitions: ReplicaIds,
    racks: dict[int, str] | None = RACKS,
    controller: int = 5,
    troubles: tuple[Trouble, ...] = (),
    moving: dict[int, ReplicaIds] | None = None,
) -> ClusterState:
    topic = TopicState("id", partitions, {}, moving or {})
    told = dict.fromkeys(RACKS, None) if racks is None else racks
    return ClusterState(told, {"flights": topic}, controller_id=controller, troubles=troubles)


def views(*changed: int, down: frozenset[int] = frozenset()) -> list[BrokerView]:
    return [BrokerView(number, True, number not in down, number in changed) for number in RACKS]


ALL = views(*RACKS)


def test_brokers_of_one_rack_restart_together_up_to_the_allowed_number() -> None:
    assert restart_batch(0, ALL, state(*ACROSS), 3) == [0, 2, 4]
    assert restart_batch(0, ALL, state(*ACROSS), 2) == [0, 2]
    assert restart_batch(0, ALL, state(*ACROSS), 1) == [0]


def test_only_changed_brokers_restart_together() -> None:
    assert restart_batch(0, views(0, 1, 4), state(*ACROSS), 3) == [0, 4]


def test_brokers_that_share_a_partition_do_not_restart_together() -> None:
    assert restart_batch(0, ALL, state((0, 1), (2, 0)), 3) == [0, 4]
    assert restart_batch(0, ALL, state((0, 1), (2, 4)), 3) == [0, 2]


def test_the_controller_does_not_restart_together_with_others() -> None:
    assert restart_batch(0, ALL, state(*ACROSS, controller=2), 3) == [0, 4]


def test_brokers_without_racks_restart_one_by_one() -> None:
    assert restart_batch(0, ALL, state(*ACROSS, racks=None), 3) == [0]


def test_brokers_restart_one_by_one_while_replicas_move_or_no_broker_answers() -> None:
    assert restart_batch(0, ALL, state(*ACROSS, moving={0: (2, 1)}), 3) == [0]
    assert restart_batch(0, ALL, None, 3) == [0]


def test_a_broker_that_is_down_restarts_alone() -> None:
    assert restart_batch(0, views(*RACKS, down=frozenset({0})), state(*ACROSS), 3) == [0]


def test_a_broker_that_may_have_the_last_in_sync_replica_is_left_out() -> None:
    trouble = Trouble("flights", 1, missing=(3,), in_sync=(2,), offline=False)
    assert restart_batch(0, ALL, state(*ACROSS, troubles=(trouble,)), 3) == [0, 4]


@given(
    st.lists(st.permutations(range(6)).map(lambda row: tuple(row[:3])), max_size=12),
    st.sampled_from(range(6)),
    st.sampled_from(range(6)),
    st.integers(1, 4),
)
def test_a_batch_is_of_one_rack_and_has_at_most_one_replica_of_each_partition(
    partitions: list[tuple[int, ...]], first: int, controller: int, count_max: int
) -> None:
    batch = restart_batch(first, ALL, state(*partitions, (0, 1), controller=controller), count_max)
    assert batch[0] == first
    assert len(batch) == len(set(batch)) <= count_max
    assert {RACKS[number] for number in batch} == {RACKS[first]}
    assert all(len(set(row) & set(batch)) <= 1 for row in partitions)
