"""Split topics with documents that vanished, are older, or were damaged."""

from uuid import UUID

import msgspec
import pytest
from large_topics import STATE, a_change, a_large_topic, changes_of, stored, with_level_2
from metadata_cluster import SESSION_MS, ClusterOfNodes
from store_conformance import delete

from barnabas_broker.metadata.controller import deletions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import FEATURES_KEY, documents_of, encode, laid_out, part_keys, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage, writes_of
from barnabas_broker.metadata.model import BrokerRegistration, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_clock import ManualClock


async def test_a_vanished_part_is_restored_by_a_broker_that_knows_it(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    before = await stored(node)
    gone = next(key for key in before if key.startswith("partitions/t/200"))
    await delete(node.store, gone)
    await node.image.reached(await node.store.latest_revision())
    await node.until(lambda: not node.image.lost)
    assert await stored(node) == before
    assert node.image.topics["t"] == topic


def test_a_change_of_a_part_is_kept_while_its_head_is_missing() -> None:
    image = with_level_2(MetadataImage())
    topic = laid_out(TopicDocument("t", UUID(int=1), (STATE,) * 250), splits=True)
    documents = documents_of(topic, image.stored)
    image.apply_changes(changes_of([(key, encode(document)) for key, document in documents.items()]))
    (_, second), key = topic.parts, part_keys(topic)[1]
    newer = msgspec.structs.replace(STATE, isr=(), partition_epoch=1)
    part = msgspec.structs.replace(documents[key], partitions=(newer,) * second.count)
    image.apply_changes(Changes(10, [Change(10, topic_key("t"), None)]))
    image.apply_changes(Changes(11, [Change(11, key, encode(part))]))
    assert image.topics["t"].partitions == (STATE,) * 200 + (newer,) * 50
    assert image.lost[topic_key("t")] == image.topics["t"]
    assert writes_of(topic_key("t"), image.lost[topic_key("t")], image).keys() == {topic_key("t")}


def test_vanished_features_stay_in_force_until_they_are_restored() -> None:
    image = with_level_2(MetadataImage())
    image.apply_changes(Changes(9, [Change(9, FEATURES_KEY, None)]))
    assert list(image.lost) == [FEATURES_KEY]
    assert image.splits_topics


async def test_an_older_copy_of_a_part_is_replaced_by_the_newest_known_one(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    found = (await node.store.listing()).documents
    before = {each.key: each.value for each in found if each.key.startswith("partitions/")}
    await node.writer.change_isr([a_change(topic, 205)])
    newest = await stored(node)
    for key, value in before.items():
        await node.store.put(key, value)
    await node.image.reached(await node.store.latest_revision())
    await node.until(lambda: not node.image.lost)
    assert await stored(node) == newest


async def test_a_topic_with_a_missing_part_is_unknown_and_cannot_be_created_again(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    await cluster.kill(0)
    store = await SqliteStore.open(cluster.path, ManualClock())
    await delete(store, part_keys(topic)[1])
    await store.close()
    (after,) = await cluster.start(0)
    assert (after.image.topics, list(after.image.incomplete), list(after.image.lost)) == ({}, ["t"], [])
    (outcome,) = (await after.writer.create_topics([NewTopic("t", 1)])).values()
    assert isinstance(outcome, ApiError)
    assert outcome.code is ErrorCode.POLICY_VIOLATION
    assert "`barnabas restore-metadata`" in str(outcome)


@pytest.mark.parametrize("by_id", [False, True])
async def test_a_topic_with_a_missing_part_can_be_deleted_and_then_created_again(
    cluster: ClusterOfNodes, by_id: bool
) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    await cluster.kill(0)
    store = await SqliteStore.open(cluster.path, ManualClock())
    await delete(store, part_keys(topic)[0])
    await store.close()
    (after,) = await cluster.start(0)
    assert list(after.image.incomplete) == ["t"]
    asked = topic.topic_id if by_id else "t"
    assert isinstance((await after.writer.delete_topics([asked]))[asked], TopicDocument)
    assert (await stored(after), list(after.image.tombstones)) == ({}, [topic.topic_id])
    assert isinstance((await after.writer.create_topics([NewTopic("t", 120)]))["t"], TopicDocument)


async def test_parts_without_a_head_are_kept_while_a_broker_is_fenced(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_ms = SESSION_MS // 10  # No lease expires while the parts are kept.
    monkeypatch.setattr(deletions, "KEPT_MS", kept_ms)
    monkeypatch.setattr(deletions, "PARTS_SEARCH_MS", kept_ms)
    (node, _) = await cluster.start(0, 1)
    await a_large_topic(node)
    for number in (0, 1):
        await cluster.kill(number)
    store = await SqliteStore.open(cluster.path, ManualClock())
    await delete(store, topic_key("t"))
    await store.close()
    after = await cluster.node(0)
    await after.join()
    await after.beaten()
    cluster.clock.passed_ms += SESSION_MS  # Broker 1 does not return within the session.
    await after.beaten()
    after.beat()
    await after.membership.admitted()
    periodic_task = deletions.Deletions(after.image, deletions.Transitions(after.store, after.image), cluster.clock)
    left = []
    for comes_back in (False, True):
        if comes_back:
            await cluster.start(1)
            await after.until(lambda: after.image.live_brokers() == [0, 1])
        else:
            await after.image.reached(await after.store.put("brokers/1", encode(fenced(after.image.brokers[1]))))
        for _ in range(3):
            await periodic_task.tend()
            cluster.clock.passed_ms += kept_ms
        left.append(len(await stored(after)))
    assert left == [2, 0]


def fenced(registration: BrokerRegistration) -> BrokerRegistration:
    return msgspec.structs.replace(registration, fenced=True)


@pytest.mark.parametrize("stored_in_the_head", [99, 101, 250])
def test_partitions_keep_their_numbers_if_the_head_is_damaged(stored_in_the_head: int) -> None:
    image = MetadataImage()
    states = tuple(msgspec.structs.replace(STATE, leader_epoch=number) for number in range(250))
    topic = laid_out(TopicDocument("t", UUID(int=1), states), splits=True)
    documents = documents_of(topic, image.stored)
    image.apply_changes(changes_of([(key, encode(document)) for key, document in documents.items()]))
    damaged = msgspec.structs.replace(topic, partitions=states[:stored_in_the_head])
    image.apply_changes(Changes(9, [Change(9, topic_key("t"), encode(damaged))]))
    assert image.topics["t"] == topic
