"""The metadata writer on a real store: a change is in the image when its result is returned."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
)
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic, automatic_topic
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ImageChange, broker_key, encode
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.membership import ensure_cluster_id
from barnabas_broker.metadata.model import BrokerRegistration, TopicDocument
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import WRITTEN_ITEMS
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock

TOPIC = ConfigResourceType.TOPIC
BROKER = ConfigResourceType.BROKER


@dataclass
class Broker:
    store: SqliteStore
    image: MetadataImage
    config: BrokerConfig
    writer: MetadataWriter


@asynccontextmanager
async def started(path: Path, broker_id: int = 0, **settings: str) -> AsyncIterator[Broker]:
    """Yield the metadata layer of a broker that follows the store."""
    config = parse_broker_config({name.replace("_", "."): value for name, value in settings.items()})
    store = await SqliteStore.open(path, ManualClock())
    registration = BrokerRegistration(broker_id, UUID(int=broker_id), (Endpoint("PLAINTEXT", "localhost", 9092),))
    await store.put(broker_key(broker_id), encode(registration))
    image = MetadataImage()
    await image_feed.load(image, store)
    controller = MetadataWriter(broker_id, store, image, lambda: config, random.Random(broker_id), lambda: 5)
    following = asyncio.create_task(image_feed.ImageFeed(image, store, asyncio.sleep).follow())
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield Broker(store, image, config, controller)
    finally:
        await store.close()
        await following


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with started(tmp_path / "metadata.sqlite") as one:
        yield one


def code_of(outcome: object) -> ErrorCode:
    assert isinstance(outcome, ApiError)
    return outcome.code


async def test_a_created_topic_is_in_the_image_when_its_creation_returns(broker: Broker) -> None:
    seen: list[ImageChange] = []
    broker.image.subscribe(seen.append)
    outcomes = await broker.writer.create_topics([NewTopic("flights", partitions=6)])
    topic = outcomes["flights"]
    assert isinstance(topic, TopicDocument)
    assert broker.image.topics == {"flights": topic}
    assert broker.image.topic_name(topic.topic_id) == "flights"
    assert [state.leader for state in topic.partitions] == [0] * 6
    assert seen == [ImageChange(created=(topic,))]


async def test_topics_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    async with started(path) as broker:
        created = await broker.writer.create_topics([NewTopic("a", configs={"retention.ms": "1000"})])
    async with started(path) as broker:
        assert broker.image.topics == created


async def test_each_topic_of_a_request_is_created_or_refused_separately(broker: Broker) -> None:
    await broker.writer.create_topics([NewTopic("there")])
    outcomes = await broker.writer.create_topics(
        [NewTopic("there"), NewTopic("new"), NewTopic("bad name"), NewTopic("twice"), NewTopic("twice")]
    )
    assert {name: code_of(outcome) for name, outcome in outcomes.items() if name != "new"} == {
        "there": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "twice": ErrorCode.INVALID_REQUEST,
    }
    assert set(broker.image.topics) == {"there", "new"}


async def test_validating_a_topic_writes_nothing(broker: Broker) -> None:
    revision = broker.image.revision
    outcomes = await broker.writer.create_topics([NewTopic("a", 3), NewTopic("b", 0)], validate_only=True)
    assert isinstance(outcomes["a"], TopicDocument)
    assert code_of(outcomes["b"]) is ErrorCode.INVALID_PARTITIONS
    assert (await broker.store.listing()).revision == revision


async def test_very_many_topics_are_validated_over_several_turns_and_against_each_other(broker: Broker) -> None:
    names = [f"topic.{number}" for number in range(3 * WRITTEN_ITEMS)]
    asked = [NewTopic(name) for name in (*names, "topic_0")]
    validating = asyncio.ensure_future(broker.writer.create_topics(asked, validate_only=True))
    turns = 0
    while not validating.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(names) / WRITTEN_ITEMS
    outcomes = validating.result()
    assert code_of(outcomes.pop("topic_0")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [each.name for each in outcomes.values() if isinstance(each, TopicDocument)] == names


async def test_only_one_of_two_brokers_creates_the_same_topic(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    async with started(path, 0) as one, started(path, 1) as two:
        names = [f"t{number}" for number in range(20)]
        asked = [NewTopic(name) for name in names]
        first, second = await asyncio.gather(one.writer.create_topics(asked), two.writer.create_topics(asked))
        for name in names:
            outcomes = [first[name], second[name]]
            created = [outcome for outcome in outcomes if isinstance(outcome, TopicDocument)]
            assert len(created) == 1
            assert {code_of(outcome) for outcome in outcomes if outcome is not created[0]} == {
                ErrorCode.TOPIC_ALREADY_EXISTS
            }


async def test_a_thousand_topics_are_created_in_one_request(broker: Broker) -> None:
    names = [f"topic-{number}" for number in range(1000)]
    outcomes = await broker.writer.create_topics([NewTopic(name, partitions=6) for name in names])
    assert all(isinstance(outcome, TopicDocument) for outcome in outcomes.values())
    assert sorted(broker.image.topics) == sorted(names)


async def test_a_topic_is_deleted_by_name_or_id(broker: Broker) -> None:
    created = await broker.writer.create_topics([NewTopic("a"), NewTopic("b")])
    second = created["b"]
    assert isinstance(second, TopicDocument)
    seen: list[ImageChange] = []
    broker.image.subscribe(seen.append)
    outcomes = await broker.writer.delete_topics(["a", second.topic_id, "c", UUID(int=7)])
    assert outcomes["a"] == created["a"]
    assert outcomes[second.topic_id] == second
    assert code_of(outcomes["c"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(outcomes[UUID(int=7)]) is ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.image.topics == {}
    assert [topic.name for change in seen for topic in change.deleted] == ["a", "b"]


async def test_topics_cannot_be_deleted_if_delete_topic_enable_is_false(tmp_path: Path) -> None:
    async with started(tmp_path / "m.sqlite", delete_topic_enable="false") as broker:
        await broker.writer.create_topics([NewTopic("a")])
        outcomes = await broker.writer.delete_topics(["a"])
        assert code_of(outcomes["a"]) is ErrorCode.TOPIC_DELETION_DISABLED
        assert "a" in broker.image.topics


async def test_the_number_of_partitions_can_only_increase(broker: Broker) -> None:
    await broker.writer.create_topics([NewTopic("a", partitions=6)])
    before = broker.image.topics["a"]
    assert await broker.writer.create_partitions([NewPartitions("a", 12)]) == {"a": None}
    after = broker.image.topics["a"]
    assert after.partitions[:6] == before.partitions
    assert (len(after.partitions), after.topic_id) == (12, before.topic_id)
    outcomes = await broker.writer.create_partitions([NewPartitions("a", 5), NewPartitions("b", 5)])
    error = outcomes["a"]
    assert code_of(error) is ErrorCode.INVALID_PARTITIONS
    assert str(error) == "The topic a currently has 12 partition(s); 5 would not be an increase."
    assert code_of(outcomes["b"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_configs_of_a_topic_are_changed_incrementally(broker: Broker) -> None:
    await broker.writer.create_topics([NewTopic("a", configs={"retention.ms": "1000"})])
    changes = [
        ConfigChange("retention.ms", ConfigOperation.DELETE, None),
        ConfigChange("cleanup.policy", ConfigOperation.APPEND, "compact"),
        ConfigChange("segment.bytes", ConfigOperation.SET, "2097152"),
    ]
    resource = ConfigResource(TOPIC, "a")
    assert await broker.writer.alter_configs({resource: changes}) == {resource: None}
    assert broker.image.topics["a"].configs == {"cleanup.policy": "delete,compact", "segment.bytes": "2097152"}


async def test_configs_of_topics_are_replaced(broker: Broker) -> None:
    await broker.writer.create_topics([NewTopic("a", configs={"retention.ms": "1000", "segment.ms": "5000"})])
    resource = ConfigResource(TOPIC, "a")
    assert await broker.writer.replace_configs({resource: {"retention.ms": "7"}}) == {resource: None}
    assert broker.image.topics["a"].configs == {"retention.ms": "7"}
    refused = await broker.writer.replace_configs({resource: {"retention.ms": "-7"}})
    assert code_of(refused[resource]) is ErrorCode.INVALID_CONFIG
    assert broker.image.topics["a"].configs == {"retention.ms": "7"}


async def test_configs_of_one_broker_are_separate_from_those_of_all_brokers(broker: Broker) -> None:
    one, everyone = ConfigResource(BROKER, "0"), ConfigResource(BROKER, "")
    changes = {
        one: [ConfigChange("log.retention.ms", ConfigOperation.SET, "1000")],
        everyone: [ConfigChange("message.max.bytes", ConfigOperation.SET, "2000")],
    }
    assert await broker.writer.alter_configs(changes) == {one: None, everyone: None}
    config = broker.config.with_usable(broker.image.configs_of_broker("0"), broker.image.configs_of_broker("")).config
    assert (config.log_retention_ms, config.message_max_bytes) == (1000, 2000)


async def test_producer_ids_are_never_allocated_twice(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    async with started(path, 0) as one, started(path, 1) as two:
        blocks = await asyncio.gather(*(b.writer.allocate_producer_ids() for b in (one, two) for _ in range(10)))
    async with started(path, 2) as again:
        blocks.append(await again.writer.allocate_producer_ids())
    first = min(block.start for block in blocks)
    assert sorted(block.start for block in blocks) == list(range(first, first + 21_000, 1000))
    assert {len(block) for block in blocks} == {1000}


async def test_the_offsets_topic_is_created_with_the_settings_of_the_coordinator(tmp_path: Path) -> None:
    async with started(tmp_path / "m.sqlite", offsets_topic_replication_factor="1") as broker:
        assert await broker.writer.create_automatically(["__consumer_offsets", "plain"]) == {}
        assert await broker.writer.create_automatically(["__consumer_offsets"]) == {}
        topic = broker.image.topics["__consumer_offsets"]
        assert len(topic.partitions) == 50
        assert topic.configs["cleanup.policy"] == "compact"
        assert len(broker.image.topics["plain"].partitions) == 1


@pytest.mark.parametrize(
    ("settings", "min_isr"),
    [
        ({"transaction_state_log_replication_factor": "2"}, "1"),
        ({"transaction_state_log_replication_factor": "3"}, "2"),
        ({"transaction_state_log_replication_factor": "2", "transaction_state_log_min_isr": "2"}, "2"),
    ],
)
def test_min_isr_of_the_transaction_topic_is_one_below_its_replicas_by_default(
    settings: dict[str, str], min_isr: str
) -> None:
    texts = {name.replace("_", "."): text for name, text in settings.items()}
    made = automatic_topic("__transaction_state", parse_broker_config(texts))
    assert made.configs["min.insync.replicas"] == min_isr


def test_records_of_the_state_topic_of_share_groups_never_expire_and_are_never_compacted() -> None:
    made = automatic_topic("__share_group_state", parse_broker_config({}))
    assert (made.partitions, made.replication_factor) == (50, 3)
    assert made.configs == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


async def test_the_offsets_topic_is_not_created_without_enough_brokers(broker: Broker) -> None:
    outcomes = await broker.writer.create_automatically(["__consumer_offsets"])
    assert outcomes == {"__consumer_offsets": ErrorCode.INVALID_REPLICATION_FACTOR}


async def test_a_request_times_out_while_the_store_is_unavailable(broker: Broker) -> None:
    await broker.store.close()
    outcomes = await broker.writer.create_topics([NewTopic("a")])
    assert code_of(outcomes["a"]) is ErrorCode.REQUEST_TIMED_OUT


async def test_the_cluster_id_is_created_once(tmp_path: Path) -> None:
    stores = [await SqliteStore.open(tmp_path / "m.sqlite", ManualClock()) for _ in range(3)]
    ids = await asyncio.gather(*(ensure_cluster_id(store, random.Random(n)) for n, store in enumerate(stores)))
    assert len(set(ids)) == 1
    assert len(ids[0]) == 22
    for store in stores:
        await store.close()
