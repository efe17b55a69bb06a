"""Topics are removed by a deletion request, and restored when their documents vanish in other ways."""

import asyncio
import sqlite3
from uuid import UUID

import msgspec
from metadata_cluster import SESSION_MS, ClusterOfNodes, Node, a_topic, led
from store_conformance import delete

from barnabas_broker.metadata.controller import deletions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.metadata.documents import broker_key, encode, tombstone_key, topic_key
from barnabas_broker.metadata.image.metadata_image import with_newer_partitions
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.store.metadata_store import Changes
from barnabas_core.topic_partition import TopicPartition


async def keys(node: Node, prefix: str) -> list[str]:
    return [each.key for each in (await node.store.listing()).documents if each.key.startswith(prefix)]


async def test_a_deleted_topic_leaves_a_tombstone(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    made = (await one.writer.create_topics([NewTopic("a", 1, 1)]))["a"]
    assert isinstance(made, TopicDocument)
    assert (await one.writer.delete_topics(["a"]))["a"] == made
    await two.until(lambda: "a" not in two.image.topics and made.topic_id in two.image.tombstones)
    assert await keys(one, "t") == [tombstone_key(made.topic_id)]
    again = (await two.writer.create_topics([NewTopic("a", 1, 1)]))["a"]
    assert isinstance(again, TopicDocument)
    assert two.image.topics == {"a": again}


async def test_a_broker_whose_metadata_is_late_deletes_a_topic_by_an_id_that_it_does_not_know_yet(
    cluster: ClusterOfNodes,
) -> None:
    one, two = await cluster.start(1, 2)
    apply = two.image.apply_changes
    waiting: list[Changes] = []
    two.image.apply_changes = waiting.append  # type: ignore[assignment]
    made = (await one.writer.create_topics([NewTopic("a", 1, 1)]))["a"]
    assert isinstance(made, TopicDocument)
    latest_revision, is_asked = two.store.latest_revision, asyncio.Event()

    async def asked() -> int:
        is_asked.set()
        return await latest_revision()

    two.store.latest_revision = asked  # type: ignore[method-assign]
    deleting, asking = (
        asyncio.ensure_future(each) for each in (two.writer.delete_topics([made.topic_id]), is_asked.wait())
    )
    await asyncio.wait((deleting, asking), return_when=asyncio.FIRST_COMPLETED)
    two.image.apply_changes = apply  # type: ignore[method-assign]
    for changes in waiting:
        apply(changes)
    assert await deleting == {made.topic_id: made}


async def test_the_controller_completes_an_unfinished_topic_deletion(cluster: ClusterOfNodes) -> None:
    (one,) = await cluster.start(1)
    topic = a_topic("a", led(1))
    await cluster.topics(topic)
    tombstone = deletions.tombstone_of(topic, cluster.clock.now_ms())
    await one.store.put(tombstone_key(topic.topic_id), encode(tombstone))
    await one.until(lambda: topic.topic_id in one.image.tombstones)
    cluster.clock.passed_ms += deletions.FINISHED_AFTER_MS
    one.beat()
    assert not one.image.topics
    await one.until(lambda: not one.image.deleting)
    assert await keys(one, "topics/") == []


async def test_tombstones_are_removed_after_all_brokers_were_alive_for_long_enough(cluster: ClusterOfNodes) -> None:
    one, _ = await cluster.start(1, 2)
    topic = (await one.writer.create_topics([NewTopic("a", 1, 1)]))["a"]
    assert isinstance(topic, TopicDocument)
    await one.writer.delete_topics(["a"])
    one.beat()
    await one.lease_renewed()
    for _ in range(4):
        assert topic.topic_id in one.image.tombstones
        for _ in range(deletions.KEPT_MS // SESSION_MS // 3):
            cluster.clock.passed_ms += SESSION_MS - 1
            for node in cluster.nodes.values():
                await node.beaten()
    cluster.clock.passed_ms += 1000
    one.beat()
    await one.until(lambda: not one.image.tombstones)
    assert await keys(one, "tombstones/") == []


async def test_tombstones_stay_while_a_log_dir_is_offline(cluster: ClusterOfNodes) -> None:
    one, _ = await cluster.start(1, 2)
    topic = (await one.writer.create_topics([NewTopic("a", 1, 1)]))["a"]
    assert isinstance(topic, TopicDocument)
    await one.writer.delete_topics(["a"])
    away = encode(msgspec.structs.replace(one.image.brokers[2], dirs_away=True))
    await one.image.reached(await one.store.put(broker_key(2), away))
    for _ in range(2 * deletions.KEPT_MS // SESSION_MS):
        cluster.clock.passed_ms += SESSION_MS - 1
        for node in cluster.nodes.values():
            node.beat()
            await node.lease_renewed()
    assert topic.topic_id in one.image.tombstones


async def test_a_document_missing_in_the_store_is_restored_by_the_next_change(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topics(a_topic("a", led(1, 2)))
    with sqlite3.connect(cluster.path) as connection:
        connection.execute("DELETE FROM documents WHERE key = 'topics/a'")
    [(_, error)] = (await one.writer.elect_leaders(ElectionType.PREFERRED, [TopicPartition("a", 0)])).items()
    assert error is not None  # The preferred replica already leads.
    [(_, error)] = (await two.writer.alter_reassignments({TopicPartition("a", 0): [2, 1]})).items()
    assert error is None
    assert await keys(one, "topics/") == [topic_key("a")]
    await one.until(lambda: one.state("a").replicas == (2, 1))


async def test_documents_deleted_from_the_store_are_restored(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    topic = a_topic("a", led(1, 2))
    await cluster.topics(topic)
    before = two.image.topics["a"]
    for key in [document.key for document in (await one.store.listing()).documents]:
        await delete(one.store, key)
    latest = await one.store.latest_revision()
    for node in (one, two):
        await node.image.reached(latest)
        await node.until(lambda node=node: not node.image.lost)  # type: ignore[misc]
        assert node.image.topics == {"a": before}
        assert node.image.live == {1, 2}
    assert {"topics/a", "brokers/1", "brokers/2", "cluster", "controller"} >= set(await keys(one, ""))
    assert one.image.restored_total + two.image.restored_total >= 4


async def test_an_older_copy_of_a_topic_is_replaced_by_the_newest_known_one(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topics(a_topic("a", led(1, 2)))
    older = await one.store.get(topic_key("a"))
    assert older is not None
    for wanted in ([2, 1], [1, 2], [2, 1]):
        await one.writer.alter_reassignments({TopicPartition("a", 0): wanted})
    newest = one.image.topics["a"]
    put_back = await one.store.put(topic_key("a"), older.value)
    for node in (one, two):
        await node.image.reached(put_back)
        await node.until(lambda node=node: not node.image.lost)  # type: ignore[misc]
        assert node.image.topics["a"] == newest


async def test_a_topic_is_written_again_if_a_deleted_one_of_the_same_name_is_put_back(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topics(a_topic("a", led(1, 2)))
    deleted = await one.store.get(topic_key("a"))
    assert deleted is not None
    await one.writer.delete_topics(["a"])
    await cluster.topics(later := msgspec.structs.replace(a_topic("a", led(2, 1)), topic_id=UUID(int=77)))
    put_back = await one.store.put(topic_key("a"), deleted.value)
    for node in (one, two):
        await node.image.reached(put_back)
        await node.until(lambda node=node: not node.image.lost)  # type: ignore[misc]
        assert node.image.topics["a"] == later


def test_the_configs_with_the_higher_epoch_are_kept() -> None:
    older = a_topic("a", led(1), retention_ms="1")
    newer = msgspec.structs.replace(older, configs={"retention.ms": "2"}, configs_epoch=1)
    assert with_newer_partitions(newer, older) == newer
    assert with_newer_partitions(older, newer) is newer
