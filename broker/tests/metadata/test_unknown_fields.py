"""Unknown fields of a newer version survive changes of documents by this version."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_cluster import Node, a_topic, cluster_at, led

from barnabas_broker.metadata import documents
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.metadata.controller.decisions.cluster_settings import FeatureUpdate, UpgradeType
from barnabas_broker.metadata.documents import (
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    MalformedDocument,
    broker_configs_key,
    broker_key,
    decode,
    encode,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    FIRST_LEVELS,
    SPLIT_TOPICS_LEVEL,
    SUPPORTED,
    BrokerRegistration,
    FeaturesDocument,
    PartitionState,
    ProducerIdsDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_core.conventions import METADATA_LEVEL

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

SET_THREADS = ConfigChange("log.cleaner.threads", ConfigOperation.SET, "2")
DELETE_THREADS = ConfigChange("log.cleaner.threads", ConfigOperation.DELETE, None)


@given(of_topic=UNKNOWN, of_partitions=st.lists(UNKNOWN, min_size=1, max_size=3))
def test_a_changed_topic_keeps_the_fields_of_a_newer_version(
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
def test_a_changed_registration_keeps_the_fields_of_a_newer_version(unknown: dict[str, object]) -> None:
    broker = decode("brokers/1", json.dumps(BROKER | unknown).encode())
    assert isinstance(broker, BrokerRegistration)
    assert json.loads(encode(msgspec.structs.replace(broker, fenced=True))) == BROKER | unknown | {"fenced": True}


OF_EACH_KIND: dict[str, dict[str, object]] = {
    "topics/a": TOPIC | {"partitions": [PARTITION]},
    "partitions/a/100-x": {"name": "a", "topic_id": TOPIC["topic_id"], "first": 100, "partitions": [PARTITION]},
    "tombstones/7": {"name": "a", "topic_id": TOPIC["topic_id"], "deleted_at_ms": 5},
    "brokers/1": BROKER,
    "log-ends/1/0": {"broker_epoch": 3, "topics": {TOPIC["topic_id"]: [[0, 1, 2, 2]]}},
    "broker-configs/1": {"configs": {"a": "b"}},
    "cluster": {"cluster_id": "x"},
    "controller": {"broker_id": 1, "epoch": 2},
    "producer-ids": {"next_producer_id": 1000},
    "features": {"levels": {"a": 1}},
    "acls/topic-literal/1f": {
        "resource_type": "TOPIC",
        "pattern_type": "LITERAL",
        "name": "a",
        "acls": [["User:alice", "*", "READ", "ALLOW"]],
    },
    "group-configs/1f": {"group": "g", "configs": {"a": "b"}},
    "client-quotas": {"entities": [{"entity": {"user": None}, "quotas": {"request_percentage": 50.0}}]},
}


def test_there_is_an_example_of_each_kind_of_document() -> None:
    assert {key.partition("/")[0] for key in OF_EACH_KIND} == set(documents._KINDS)


@pytest.mark.parametrize("key", OF_EACH_KIND)
@given(unknown=UNKNOWN)
def test_documents_of_every_kind_keep_the_fields_of_a_newer_version(key: str, unknown: dict[str, object]) -> None:
    stored = OF_EACH_KIND[key] | unknown
    document = decode(key, json.dumps(stored).encode())
    assert document is not None
    assert json.loads(encode(document)) == stored


async def test_fields_of_a_newer_broker_survive_changes_by_an_older_one(tmp_path: Path) -> None:
    """The older broker changes configs and hands over leadership."""
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        older, other = await cluster.start(0, 1)
        await cluster.topics(a_topic("t", led(0, 1)))
        found = await other.store.get("topics/t")
        assert found is not None
        written = json.loads(found.value)
        written["tiered"] = {"bucket": "b"}
        written["partitions"][0]["remote_offset"] = 17
        await other.store.put("topics/t", json.dumps(written).encode(), found.version)
        await older.image.reached(await older.store.latest_revision())
        resource = ConfigResource(ConfigResourceType.TOPIC, "t")
        change = ConfigChange("retention.ms", ConfigOperation.SET, "5")
        assert await older.writer.alter_configs({resource: [change]}) == {resource: None}
        assert await older.writer.hand_over(0) == []
        found = await other.store.get("topics/t")
        assert found is not None
        after = json.loads(found.value)
        assert (after["tiered"], after["partitions"][0]["remote_offset"]) == ({"bucket": "b"}, 17)
        assert (after["configs"], after["partitions"][0]["leader"]) == ({"retention.ms": "5"}, 1)


async def test_levels_configs_and_producer_ids_keep_the_fields_of_a_newer_version(tmp_path: Path) -> None:
    async with cluster_at(tmp_path / "metadata.db") as cluster:
        (older,) = await cluster.start(0)
        await older.store.put(FEATURES_KEY, encode(FeaturesDocument(dict(FIRST_LEVELS))))
        await older.store.put(PRODUCER_IDS_KEY, encode(ProducerIdsDocument(0)))
        supports = msgspec.structs.replace(older.image.brokers[0], features=dict(SUPPORTED))
        await older.store.put(broker_key(0), encode(supports))
        broker = ConfigResource(ConfigResourceType.BROKER, "0")
        await older.image.reached(await older.store.latest_revision())
        assert await older.writer.alter_configs({broker: [SET_THREADS]}) == {broker: None}
        await older.writer.allocate_producer_ids()
        keys = [FEATURES_KEY, broker_configs_key("0"), PRODUCER_IDS_KEY]
        for key in keys:
            await older.store.put(key, with_a_new_field(await stored(older, key)))
        await older.image.reached(await older.store.latest_revision())
        await older.writer.update_features([FeatureUpdate(METADATA_LEVEL, SPLIT_TOPICS_LEVEL, UpgradeType.UPGRADE)])
        assert await older.writer.alter_configs({broker: [DELETE_THREADS]}) == {broker: None}
        await older.writer.allocate_producer_ids()
        found = [json.loads(await stored(older, key)) for key in keys]
        assert [each.pop("new") for each in found] == [7] * 3
        assert found == [
            {"levels": {**FIRST_LEVELS, METADATA_LEVEL: SPLIT_TOPICS_LEVEL}},
            {"configs": {}},
            {"next_producer_id": 2_000},
        ]


async def stored(node: Node, key: str) -> bytes:
    found = await node.store.get(key)
    assert found is not None
    return found.value


def with_a_new_field(value: bytes) -> bytes:
    return json.dumps(json.loads(value) | {"new": 7}).encode()


def test_restored_producer_ids_keep_the_fields_of_a_newer_version() -> None:
    image = MetadataImage()
    for revision, next_id in ((1, 9), (2, 5)):
        value = with_a_new_field(encode(ProducerIdsDocument(next_id)))
        image.apply_changes(Changes(revision, [Change(revision, PRODUCER_IDS_KEY, value)]))
    assert json.loads(encode(image.lost[PRODUCER_IDS_KEY])) == {"next_producer_id": 9, "new": 7}


def test_an_invalid_document_with_unknown_fields_is_refused() -> None:
    with pytest.raises(MalformedDocument, match="leader"):
        decode("topics/a", json.dumps(TOPIC | {"new": 1, "partitions": [PARTITION | {"leader": "x"}]}).encode())
    with pytest.raises(MalformedDocument):
        decode("topics/a", b"[1]")


def test_states_with_unknown_fields_can_be_compared_and_hashed() -> None:
    state = PartitionState((1,), 1, 0, (1,), unknown_fields='{"new":1}')
    assert len({state, msgspec.structs.replace(state)}) == 1
