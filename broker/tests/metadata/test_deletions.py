"""Topics go when somebody deletes them, and come back when they vanish otherwise."""

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from metadata_cluster import SESSION_MS, ClusterOfNodes, Node, a_topic, cluster_at, led

from barnabas_broker.metadata.controller import deletions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.controller.decisions.elections import ElectionType
from barnabas_broker.metadata.documents import broker_key, encode, tombstone_key, topic_key
from barnabas_broker.metadata.image.restoration import compared, confirmed, unled, with_newer_partitions
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition

pytestmark = pytest.mark.anyio


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterOfNodes]:
    async with cluster_at(tmp_path / "metadata.sqlite") as nodes:
        yield nodes


async def keys(node: Node, prefix: str) -> list[str]:
    return [document.key for document in (await node.store.listing(prefix)).documents]


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


async def test_the_controller_ends_a_deletion_that_somebody_began(cluster: ClusterOfNodes) -> None:
    (one,) = await cluster.start(1)
    topic = a_topic("a", led(1))
    await cluster.topics(topic)
    tombstone = deletions.tombstone_of(topic, cluster.clock.now_ms())
    await one.store.put(tombstone_key(topic.topic_id), encode(tombstone))
    await one.until(lambda: topic.topic_id in one.image.tombstones)
    cluster.clock.passed_ms += deletions.FINISHED_AFTER_MS
    one.beat()
    assert not one.image.topics
    await one.until(lambda: not one.image.buried)
    assert await keys(one, "topics/") == []


async def test_tombstones_go_when_all_brokers_were_alive_together_for_long(cluster: ClusterOfNodes) -> None:
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


async def test_tombstones_stay_while_a_log_dir_is_away_that_may_hold_a_log_of_theirs(cluster: ClusterOfNodes) -> None:
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


async def test_a_row_that_vanished_is_back_with_the_next_change(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    await cluster.topics(a_topic("a", led(1, 2)))
    with sqlite3.connect(cluster.path) as connection:
        connection.execute("DELETE FROM documents WHERE key = 'topics/a'")
    [(_, error)] = (await one.writer.elect_leaders(ElectionType.PREFERRED, [TopicPartition("a", 0)])).items()
    assert error is not None  # It leads already.
    [(_, error)] = (await two.writer.alter_reassignments({TopicPartition("a", 0): [2, 1]})).items()
    assert error is None
    assert await keys(one, "topics/") == [topic_key("a")]
    await one.until(lambda: one.state("a").replicas == (2, 1))


async def test_a_document_that_vanished_is_written_anew(cluster: ClusterOfNodes) -> None:
    one, two = await cluster.start(1, 2)
    topic = a_topic("a", led(1, 2))
    await cluster.topics(topic)
    before = two.image.topics["a"]
    for key in [document.key for document in (await one.store.listing("")).documents]:
        await one.store.delete(key)
    latest = await one.store.latest_revision()
    for node in (one, two):
        await node.image.reached(latest)
        await node.until(lambda node=node: not node.image.lost)  # type: ignore[misc]
        assert node.image.topics == {"a": before}
        assert node.image.live == {1, 2}
    assert {"topics/a", "brokers/1", "brokers/2", "cluster", "controller"} >= set(await keys(one, ""))
    assert one.image.restored_total + two.image.restored_total >= 4


async def test_an_older_copy_of_a_topic_is_replaced_by_what_is_known(cluster: ClusterOfNodes) -> None:
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


async def test_nobody_leads_before_all_have_compared(cluster: ClusterOfNodes) -> None:
    one, _ = await cluster.start(1, 2)
    restored = PartitionState((1, 2, 3), NO_LEADER, 9, (), elr=(1, 2), partition_epoch=12, unconfirmed=(2, 3, 1))
    await cluster.topics(a_topic("a", restored))
    await one.until(lambda: one.state("a").unconfirmed == (3,))
    assert one.state("a").leader == NO_LEADER
    three = await cluster.node(3)
    await three.start()
    await one.until(lambda: one.state("a").leader != NO_LEADER)
    assert one.state("a").unconfirmed == ()
    assert one.state("a").leader in (1, 2)


async def test_an_unclean_election_waits_for_nobody(cluster: ClusterOfNodes) -> None:
    one, _ = await cluster.start(1, 2)
    restored = PartitionState((1, 2, 3), NO_LEADER, 9, (), elr=(1, 2), partition_epoch=12, unconfirmed=(3,))
    await cluster.topics(a_topic("a", restored))
    which = TopicPartition("a", 0)
    outcome = (await one.writer.elect_leaders(ElectionType.PREFERRED, [which]))[which]
    assert isinstance(outcome, ApiError)
    assert (await one.writer.elect_leaders(ElectionType.UNCLEAN, [which]))[which] is None
    assert (one.state("a").leader, one.state("a").unconfirmed) == (1, ())


def test_the_newest_memory_counts_whoever_compares_first() -> None:
    old = a_topic("a", PartitionState((1, 2, 3), 1, 4, (1, 2, 3), partition_epoch=10))
    stale = a_topic("a", PartitionState((1, 2, 3), 2, 6, (2, 3), partition_epoch=21))
    newest = a_topic("a", PartitionState((1, 2, 3), 3, 8, (3,), partition_epoch=25))
    first = compared(stale, old, 1)
    assert (first.partitions[0].leader, first.partitions[0].unconfirmed) == (NO_LEADER, (2, 3))
    let_in = a_topic("a", *(msgspec.structs.replace(state, partition_epoch=90) for state in first.partitions))
    second = compared(newest, let_in, 3)
    (state,) = second.partitions
    assert (state.isr, state.unconfirmed, state.restored_epoch) == ((3,), (2,), 25)
    assert state.leader_epoch > 8
    assert state.partition_epoch > 90
    assert compared(stale, second, 2) is second
    (state,) = confirmed(second, 2).partitions
    assert (state.isr, state.unconfirmed, state.leader) == ((3,), (), NO_LEADER)


def test_what_is_not_older_is_left_as_it_is() -> None:
    known = a_topic("a", led(1, 2), led(2, 1))
    assert compared(known, known, 1) is known
    assert confirmed(known, 1) is known


def test_configs_that_were_changed_since_are_known_by_their_epoch() -> None:
    older = a_topic("a", led(1), retention_ms="1")
    newer = msgspec.structs.replace(older, configs={"retention.ms": "2"}, configs_epoch=1)
    assert with_newer_partitions(newer, older) == compared(newer, older, 1) == newer
    assert with_newer_partitions(older, newer) is compared(older, newer, 1) is newer


def test_who_ran_on_knows_better_than_who_started_and_remembered_less() -> None:
    known = a_topic("a", PartitionState((1, 2, 3), 2, 6, (2, 3), partition_epoch=17))
    remembered = a_topic("a", PartitionState((1, 2, 3), 1, 5, (1, 2, 3), partition_epoch=16))
    (after,) = with_newer_partitions(known, unled(remembered, 1)).partitions
    assert (after.leader, after.isr, after.unconfirmed) == (2, (2, 3), ())
    assert after.partition_epoch > 17
    as_much = unled(known, 1)
    assert with_newer_partitions(known, as_much) is as_much
    confirming = confirmed(as_much, 2)
    assert with_newer_partitions(as_much, confirming) is confirming


def test_a_single_replica_asks_nobody() -> None:
    alone = a_topic("a", led(1))
    assert unled(alone, 1) == alone
    older = a_topic("a", led(1, epoch=4))
    newer = a_topic("a", msgspec.structs.replace(led(1, epoch=6), partition_epoch=7))
    assert compared(newer, older, 1).partitions[0].unconfirmed == ()


def test_partitions_that_were_added_since_are_remembered() -> None:
    grown, before = a_topic("a", led(1, 2), led(2, 1)), a_topic("a", led(1, 2))
    after = compared(grown, before, 1)
    assert after.partitions[0] == led(1, 2)
    assert (after.partitions[1].unconfirmed, after.partitions[1].replicas) == ((2,), (2, 1))
