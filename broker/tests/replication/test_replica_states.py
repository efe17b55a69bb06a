"""The states of replicas change as one table says, and the design page shows that table."""

from pathlib import Path
from uuid import UUID

import pytest

from barnabas_broker.replication.replica_states import TRANSITIONS, ReplicaState, ReplicaStates, Trigger
from barnabas_core.topic_partition import TopicPartition

FLIGHTS = TopicPartition("flights", 0)
DESIGN = Path(__file__).parents[2] / "DESIGN.md"


def test_the_replica_of_a_recreated_topic_exists_beside_the_one_being_removed() -> None:
    states = ReplicaStates()
    first = states.begin(FLIGHTS, UUID(int=7), Trigger.ASSIGNED)
    states.change(first, Trigger.OPENED)
    states.change(first, Trigger.UNASSIGNED)
    later = states.begin(FLIGHTS, UUID(int=8), Trigger.ASSIGNED)
    assert (states.get(FLIGHTS), states.going(FLIGHTS)) == (later, first)
    states.change(first, Trigger.REMOVED)
    assert (states.get(FLIGHTS), states.going(FLIGHTS)) == (later, None)
    assert states.of(*ReplicaState) == [later]


def test_a_transition_that_the_table_lacks_is_a_bug() -> None:
    states = ReplicaStates()
    record = states.begin(FLIGHTS, UUID(int=7), Trigger.ASSIGNED)
    with pytest.raises(AssertionError, match=r"flights-0 is unmade, .* the replica's log was loaded again"):
        states.change(record, Trigger.RETURNED)


def test_the_design_page_shows_the_table() -> None:
    design = DESIGN.read_text(encoding="utf-8")
    for before, trigger, after, needs in TRANSITIONS:
        names = ", ".join(state.value for state in before)
        assert f"| {names} | {trigger.value} | {after.value} | {needs} |\n" in design
