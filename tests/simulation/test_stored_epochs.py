"""The simulation's check that no decided state in the store is overwritten."""

from random import Random
from uuid import UUID

import msgspec
import pytest

from barnabas_broker.metadata.documents import encode, topic_key, topic_part_key
from barnabas_broker.metadata.model import PartitionState, PartReference, TopicDocument, TopicPartDocument
from barnabas_broker.metadata.store.metadata_store import Write
from simulation.store import StoreState
from simulation.stored_epochs import StoredEpochs

FIRST = PartitionState((1, 2, 3), leader=2, leader_epoch=4, isr=(1, 2), partition_epoch=7)


def written_over(state: PartitionState, topic_id: UUID) -> list[str]:
    """Return the check's findings about this state, if it is written after FIRST."""
    store = StoreState(Random(0), is_one_machine=True)
    stored_epochs = StoredEpochs(store)
    store.write([Write(topic_key("t"), encode(TopicDocument("t", UUID(int=1), (FIRST,))), None)])
    assert list(stored_epochs.written_over()) == []
    store.write([Write(topic_key("t"), encode(TopicDocument("t", topic_id, (state,))), None)])
    return list(stored_epochs.written_over())


@pytest.mark.parametrize(
    ("leader_epoch", "partition_epoch", "is_said"),
    [(4, 8, False), (5, 8, False), (4, 7, True), (4, 6, True), (3, 8, True)],
)
def test_a_state_whose_epochs_do_not_rise_is_reported_as_overwriting_a_decision(
    leader_epoch: int, partition_epoch: int, is_said: bool
) -> None:
    state = msgspec.structs.replace(FIRST, isr=(2,), leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert bool(written_over(state, UUID(int=1))) is is_said


def test_a_new_topic_with_the_same_name_may_start_with_lower_epochs() -> None:
    assert written_over(msgspec.structs.replace(FIRST, leader_epoch=0, partition_epoch=0), UUID(int=2)) == []


@pytest.mark.parametrize("is_named", [True, False])
def test_a_part_counts_as_overwritten_only_if_the_head_of_its_topic_names_it(is_named: bool) -> None:
    reference = PartReference(0, 1, "a")
    key, topic_id = topic_part_key("t", reference), UUID(int=1)
    head = TopicDocument("t", topic_id, (), parts=(reference,) if is_named else ())
    store = StoreState(Random(0), is_one_machine=True)
    stored_epochs = StoredEpochs(store)
    store.write([Write(topic_key("t"), encode(head), None)])
    for isr in ((1, 2), (2,)):
        part = TopicPartDocument("t", topic_id, 0, (msgspec.structs.replace(FIRST, isr=isr),))
        store.write([Write(key, encode(part), None)])
    assert bool(list(stored_epochs.written_over())) is is_named
