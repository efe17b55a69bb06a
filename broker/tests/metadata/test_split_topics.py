"""Topics of many partitions are split over several documents. Writes are small; incomplete ones have no effect."""

import asyncio
import json
from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest
from large_topics import STATE, a_change, a_large_topic, changes_of, finalize, image_of, stored, with_level_2
from metadata_cluster import ClusterOfNodes, Node, a_topic, led

from barnabas_broker.metadata.controller import deletions
from barnabas_broker.metadata.controller.decisions.alter_configs import NewPartitions
from barnabas_broker.metadata.controller.decisions.cluster_settings import FeatureUpdate, UpgradeType
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import broker_key, documents_of, encode, joined, laid_out, part_keys, topic_key
from barnabas_broker.metadata.image.metadata_image import DocumentWrites, MetadataImage, writes_of
from barnabas_broker.metadata.model import ELR, BrokerRegistration, PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import ABSENT, StoreUnavailable, Write
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition


async def sizes(node: Node) -> list[int]:
    return [len(each["partitions"]) for each in (await stored(node)).values()]  # type: ignore[arg-type]


async def test_a_change_of_a_partition_writes_only_its_own_document(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    assert await sizes(node) == [100, 50, 100]
    before = (await node.store.listing()).documents
    changes = [a_change(topic, number) for number in (101, 150, 199)]
    outcomes = await node.writer.change_isr(changes)
    assert [getattr(each, "partition_epoch", each) for each in outcomes.values()] == [1, 1, 1]
    after = (await node.store.listing()).documents
    changed = [now for was, now in zip(before, after, strict=True) if was != now]
    assert [(each.key.rpartition("-")[0], len(each.value) < 10_000) for each in changed] == [("partitions/t/100", True)]
    assert (await image_of(node.store)).topics["t"] == node.image.topics["t"]
    assert [state.partition_epoch for state in node.image.topics["t"].partitions[100:103]] == [0, 1, 0]


async def test_a_version_conflict_on_one_document_is_retried_without_affecting_the_others(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    write, raced = node.store.write, False

    async def race(writes: Sequence[Write]) -> object:
        nonlocal raced
        if not raced and len(writes) > 1:
            raced = True
            found = await node.store.get(writes[0].key)
            assert found is not None
            await node.store.put(found.key, found.value)
        return await write(writes)

    monkeypatch.setattr(node.store, "write", race)
    outcomes = await node.writer.change_isr([a_change(topic, number) for number in (5, 105, 205)])
    assert raced
    assert [isinstance(each, PartitionState) for each in outcomes.values()] == [True] * 3


async def test_decisions_on_a_large_topic_are_made_over_several_turns(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await cluster.start(0)
    await a_large_topic(node, 5_000)
    write, decided, in_turns = node.store.write, 0, []

    def decide(which: TopicPartition, topic: TopicDocument, _: object) -> PartitionState:
        nonlocal decided
        decided += 1
        state = topic.partitions[which.partition]
        return msgspec.structs.replace(state, partition_epoch=state.partition_epoch + 1)

    async def counting(writes: Sequence[Write]) -> object:
        in_turns.append(decided)
        return await write(writes)

    monkeypatch.setattr(node.store, "write", counting)
    assert await node.writer.partitions.would_change("t", decide, FairTurn(cluster.clock))
    assert decided == 1
    decided = 0
    assert await node.writer.partitions.change_topics(["t"], decide) == {}
    assert (in_turns, decided) == ([2_000, 4_000, 5_000], 5_000)
    assert {state.partition_epoch for state in node.image.topics["t"].partitions} == {1}


async def test_other_tasks_run_between_decisions_on_a_large_topic_without_writes(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    await a_large_topic(node, 5_000)
    decided = 0
    seen: list[int] = []

    def decide(which: TopicPartition, topic: TopicDocument, _: object) -> PartitionState:
        nonlocal decided
        decided += 1
        return topic.partitions[which.partition]

    async def look() -> None:
        while decided < 5_000:
            seen.append(decided)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    assert await node.writer.partitions.change_topics(["t"], decide) == {}
    await looking
    assert {2_000, 4_000} <= set(seen)


async def test_the_first_change_at_the_required_feature_level_splits_a_large_topic(
    cluster: ClusterOfNodes,
) -> None:
    (node,) = await cluster.start(0)
    await finalize(node, 1)
    await node.writer.create_topics([NewTopic("t", 250)])
    assert await sizes(node) == [250]
    await finalize(node, 2)
    before = node.image.topics["t"]
    await node.writer.change_isr([a_change(before, 249)])
    assert await sizes(node) == [100, 50, 100]
    assert node.image.topics["t"].partitions[:249] == before.partitions[:249]
    with pytest.raises(
        ApiError, match=r"level does not support topics whose metadata is split over several keys \(t\)"
    ):
        await node.writer.update_features([FeatureUpdate(METADATA_LEVEL, 1, UpgradeType.SAFE_DOWNGRADE)])


async def test_a_feature_level_is_refused_if_a_fenced_broker_does_not_support_it(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    await finalize(node, 1)
    newer = msgspec.structs.replace(node.image.brokers[0], features={METADATA_LEVEL: (1, 2), ELR: (1, 1)})
    older = BrokerRegistration(7, UUID(int=7), (), fenced=True)
    await node.store.put(broker_key(0), encode(newer))
    await node.image.reached(await node.store.put(broker_key(7), encode(older), ABSENT))
    with pytest.raises(ApiError, match=r"broker 7 \(not alive\) supports levels 1 to 1"):
        await node.writer.update_features([FeatureUpdate(METADATA_LEVEL, 2, UpgradeType.UPGRADE)])


async def test_added_partitions_are_stored_in_new_documents(cluster: ClusterOfNodes) -> None:
    (node,) = await cluster.start(0)
    await a_large_topic(node, 150)
    assert await node.writer.create_partitions([NewPartitions("t", 320)]) == {"t": None}
    assert await sizes(node) == [50, 100, 70, 100]
    assert (await image_of(node.store)).topics["t"] == node.image.topics["t"]
    assert len(node.image.topics["t"].partitions) == 320


async def dies_before_the_head(writes: Sequence[Write], node: Node, write: object) -> object:
    if any(each.key.startswith("topics/") for each in writes):
        raise StoreUnavailable("the process was killed")
    return await write(writes)  # type: ignore[operator]


@pytest.mark.parametrize("grows", [False, True])
async def test_parts_written_without_their_head_have_no_effect_and_are_removed_later(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    (node,) = await cluster.start(0)
    await finalize(node, 2)
    if grows:
        await node.writer.create_topics([NewTopic("t", 150)])
    known, kept = dict(node.image.topics), await stored(node)
    with monkeypatch.context() as patch:
        write = node.store.write
        patch.setattr(node.store, "write", lambda writes: dies_before_the_head(writes, node, write))
        if grows:
            outcome = (await node.writer.create_partitions([NewPartitions("t", 350)]))["t"]
        else:
            outcome = (await node.writer.create_topics([NewTopic("t", 350)]))["t"]  # type: ignore[assignment]
    assert isinstance(outcome, ApiError)
    assert outcome.code is ErrorCode.REQUEST_TIMED_OUT
    assert len(await stored(node)) > len(kept)
    assert (await image_of(node.store)).topics == node.image.topics == known
    periodic_task = deletions.Deletions(node.image, deletions.Transitions(node.store, node.image), cluster.clock)
    for passed_ms, is_kept in ((60_000, True), (deletions.KEPT_MS - 1, True), (60_000, False)):
        cluster.clock.passed_ms += passed_ms
        await periodic_task.tend()
        assert (await stored(node) != kept) == is_kept
    if grows:
        assert await node.writer.create_partitions([NewPartitions("t", 350)]) == {"t": None}
    else:
        assert isinstance((await node.writer.create_topics([NewTopic("t", 350)]))["t"], TopicDocument)
    assert len(node.image.topics["t"].partitions) == 350


async def test_a_part_is_not_removed_if_a_head_now_refers_to_it(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await cluster.start(0)
    topic = await a_large_topic(node)
    head, part = topic_key("t"), part_keys(topic)[1]
    values = {each.key: each.value for each in (await node.store.listing()).documents}
    node.image.topics["t"] = msgspec.structs.replace(topic, partitions=topic.partitions[:200], parts=topic.parts[:1])
    periodic_task = deletions.Deletions(node.image, deletions.Transitions(node.store, node.image), cluster.clock)
    cluster.clock.passed_ms += 60_000
    await periodic_task.tend()
    write = node.store.write
    removals: list[str] = []

    async def named_before(writes: Sequence[Write]) -> object:
        removals.extend(each.key for each in writes if each.value is None)
        if len(removals) == 1:
            await write([Write(head, values[head]), Write(part, values[part])])
        return await write(writes)

    monkeypatch.setattr(node.store, "write", named_before)
    cluster.clock.passed_ms += deletions.KEPT_MS
    await periodic_task.tend()
    assert removals == [part]
    assert part in await stored(node)


async def test_deleting_a_topic_removes_all_its_documents_and_leftover_parts_later(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node,) = await cluster.start(0)
    await a_large_topic(node)
    write = node.store.write

    async def deletes_heads_alone(writes: Sequence[Write]) -> object:
        return await write([each for each in writes if not each.key.startswith("partitions/")])

    with monkeypatch.context() as patch:
        patch.setattr(node.store, "write", deletes_heads_alone)
        with pytest.raises(ValueError, match="zip"):
            await node.writer.delete_topics(["t"])
    await node.image.reached(await node.store.latest_revision())
    assert (node.image.topics, node.image.deleting, len(await stored(node))) == ({}, {}, 2)
    assert isinstance((await node.writer.create_topics([NewTopic("t", 120)]))["t"], TopicDocument)
    periodic_task = deletions.Deletions(node.image, deletions.Transitions(node.store, node.image), cluster.clock)
    for passed_ms in (60_000, deletions.KEPT_MS):
        cluster.clock.passed_ms += passed_ms
        await periodic_task.tend()
    assert await sizes(node) == [20, 100]
    await node.writer.delete_topics(["t"])
    assert await stored(node) == {}


def test_fields_of_a_newer_version_in_a_part_are_kept() -> None:
    image = MetadataImage()
    topic = laid_out(TopicDocument("t", UUID(int=1), (STATE,) * 150), splits=True)
    listed = [(key, encode(document)) for key, document in documents_of(topic, image.stored).items()]
    from_newer = [(key, json.dumps(json.loads(value) | {"new": key}).encode()) for key, value in listed]
    image.apply_changes(changes_of(from_newer))
    known = image.topics["t"]
    states = tuple(msgspec.structs.replace(state, leader_epoch=7) for state in known.partitions)
    writes = writes_of(topic_key("t"), msgspec.structs.replace(known, partitions=states), with_level_2(image))
    assert isinstance(writes, DocumentWrites)
    values = {write.key: json.loads(write.value or b"") for write in (*writes.new_parts, *writes.rest)}
    assert {key: value["new"] for key, value in values.items()} == {key: key for key, _ in listed}


def test_a_topic_of_a_hundred_partitions_is_never_split() -> None:
    topic = a_topic("t", *[led(0, 1)] * 100)
    assert laid_out(topic, splits=True) == topic
    assert joined(topic, lambda key: None, None) == (topic, True)
