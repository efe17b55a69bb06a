"""Topics that only brokers' logs know: they are reported, and none is made in their place."""

import asyncio

import pytest
from metadata_cluster import ClusterOfNodes, Node, a_topic, led
from store_conformance import delete

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import encode, tombstone_key, topic_key
from barnabas_broker.metadata.membership.log_ends import HeldLog
from barnabas_broker.metadata.membership.stray_topics import StrayTopic, stray_topics
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.storage.log_dirs.kept_records import Kept
from barnabas_core.errors import ApiError, ErrorCode

FLIGHTS = a_topic("flights", led(1))
LOGS = [HeldLog("flights", FLIGHTS.topic_id, 0, 5, 100, Kept.ALL)]


async def reported(cluster: ClusterOfNodes) -> tuple[Node, Node]:
    """Broker 1 has a log of a topic that nobody knows, broker 2 hears of it."""
    one, two = await cluster.node(1), await cluster.node(2)
    one.held = list(LOGS)
    await one.start()
    await two.start()
    return one, two


async def test_any_broker_refuses_to_make_such_a_topic_and_names_the_commands(cluster: ClusterOfNodes) -> None:
    _, two = await reported(cluster)
    assert stray_topics(two.image) == [StrayTopic("flights", FLIGHTS.topic_id, (1,))]
    outcomes = await two.writer.create_topics([NewTopic("flights", 1, 1), NewTopic("trains", 1, 1)])
    refused, made = outcomes["flights"], outcomes["trains"]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "`barnabas restore-metadata` restores the topic, `barnabas forget-topic " in str(refused)
    assert isinstance(made, TopicDocument)
    told = await two.writer.create_automatically(["flights"])
    assert told == {"flights": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "clients try again until it is back"


@pytest.mark.parametrize("way", ["its document is back", "it is forgotten"])
async def test_that_ends_once_somebody_has_decided(cluster: ClusterOfNodes, way: str) -> None:
    one, two = await reported(cluster)
    if way == "its document is back":
        revision = await one.store.put(topic_key("flights"), encode(FLIGHTS))
    else:
        tombstone = TombstoneDocument("flights", FLIGHTS.topic_id, cluster.clock.now_ms())
        revision = await one.store.put(tombstone_key(FLIGHTS.topic_id), encode(tombstone))
    await two.image.reached(revision)
    assert stray_topics(two.image) == []


async def test_a_log_that_goes_out_of_sight_is_still_reported(cluster: ClusterOfNodes) -> None:
    """Its log dir may be offline."""
    one, two = await reported(cluster)
    one.held = []
    await one.log_ends.tell()
    await two.image.reached(await two.store.latest_revision())
    assert [each.name for each in stray_topics(two.image)] == ["flights"]


async def test_a_tombstone_that_was_trimmed_lets_no_topic_come_back(cluster: ClusterOfNodes) -> None:
    (two,) = await cluster.start(2)
    await two.writer.create_topics([NewTopic("flights", 1, 1)])
    topic = two.image.topics["flights"]
    await two.writer.delete_topics(["flights"])
    await two.image.reached(await delete(two.store, tombstone_key(topic.topic_id)))
    one = await cluster.node(1)
    one.held = [HeldLog("flights", topic.topic_id, 0, 5, 100, Kept.ALL)]
    await one.start()
    await asyncio.sleep(0)
    assert (one.image.topics, [each.name for each in stray_topics(one.image)]) == ({}, ["flights"])
