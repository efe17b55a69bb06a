"""Documents of a newer version: what this one does not know outlives its changes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.metadata.documents import MalformedDocument, decode, encode
from barnabas_broker.metadata.model import BrokerRegistration, ConfigDocument, PartitionState, TopicDocument

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
UNKNOWN = st.dictionaries(st.text(min_size=1).map(lambda name: f"new_{name}"), JSON, max_size=3)
PARTITION = {"replicas": [1, 2], "leader": 1, "leader_epoch": 3, "isr": [1, 2]}
TOPIC = {"name": "a", "topic_id": "00000000-0000-0000-0000-000000000007", "configs": {"k": '"unknown_fields":'}}
BROKER = {
    "broker_id": 1,
    "incarnation_id": "00000000-0000-0000-0000-000000000007",
    "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 9092}],
}


@given(of_topic=UNKNOWN, of_partitions=st.lists(UNKNOWN, min_size=1, max_size=3))
def test_a_changed_topic_keeps_what_a_newer_version_wrote(
    of_topic: dict[str, object], of_partitions: list[dict[str, object]]
) -> None:
    stored = TOPIC | of_topic | {"partitions": [PARTITION | unknown for unknown in of_partitions]}
    topic = decode("topics/a", json.dumps(stored).encode())
    assert isinstance(topic, TopicDocument)
    first, *rest = topic.partitions
    changed = msgspec.structs.replace(topic, partitions=(msgspec.structs.replace(first, leader_epoch=4), *rest))
    expected = [PARTITION | unknown for unknown in of_partitions]
    expected[0] = expected[0] | {"leader_epoch": 4}
    assert json.loads(encode(changed)) == TOPIC | of_topic | {"partitions": expected}


@given(unknown=UNKNOWN)
def test_a_changed_registration_keeps_what_a_newer_version_wrote(unknown: dict[str, object]) -> None:
    broker = decode("brokers/1", json.dumps(BROKER | unknown).encode())
    assert isinstance(broker, BrokerRegistration)
    assert json.loads(encode(msgspec.structs.replace(broker, fenced=True))) == BROKER | unknown | {"fenced": True}


@given(unknown=UNKNOWN)
def test_other_documents_keep_it_too(unknown: dict[str, object]) -> None:
    configs = decode("broker-configs/1", json.dumps({"configs": {"a": "b"}} | unknown).encode())
    assert isinstance(configs, ConfigDocument)
    assert json.loads(encode(configs)) == {"configs": {"a": "b"}} | unknown


def test_what_is_not_valid_besides_is_refused_still() -> None:
    with pytest.raises(MalformedDocument, match="leader"):
        decode("topics/a", json.dumps(TOPIC | {"new": 1, "partitions": [PARTITION | {"leader": "x"}]}).encode())
    with pytest.raises(MalformedDocument):
        decode("topics/a", b"[1]")


def test_states_with_unknown_fields_can_be_compared_and_hashed() -> None:
    state = PartitionState((1,), 1, 0, (1,), unknown_fields='{"new":1}')
    assert len({state, msgspec.structs.replace(state)}) == 1
