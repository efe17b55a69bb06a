"""Stray topics, which exist only in the logs of brokers, are reported and cannot be created again."""

import asyncio

import pytest
from metadata_cluster import ClusterOfNodes, Node, a_topic, led
from store_conformance import delete

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic
from barnabas_broker.metadata.documents import encode, tombstone_key, topic_key
from barnabas_broker.metadata.membership.log_ends import HeldLog, StrayTopic, stray_topics
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_core.errors import ApiError, ErrorCode

FLIGHTS = a_topic("flights", led(1))
LOGS = [HeldLog("flights", FLIGHTS.topic_id, 0, 5, 100, Kept.ALL)]


async def reported(cluster: ClusterOfNodes) -> tuple[Node, Node]:
    """Start broker 1, which reports a log of an unknown topic, and broker 2; return both."""
    one, two = await cluster.node(1), await cluster.node(2)
    one.held = list(LOGS)
    await one.start()
    await two.start()
    return one, two


async def test_a_broker_refuses_to_create_a_stray_topic_and_names_the_commands(cluster: ClusterOfNodes) -> None:
    _, two = await reported(cluster)
    assert stray_topics(two.image) == [StrayTopic("flights", FLIGHTS.topic_id, (1,))]
    outcomes = await two.writer.create_topics([NewTopic("flights", 1, 1), NewTopic("trains", 1, 1)])
    refused, made = outcomes["flights"], outcomes["trains"]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "`barnabas restore-metadata` restores the topic, `barnabas forget-topic " in str(refused)
    assert isinstance(made, TopicDocument)
    told = await two.writer.create_automatically(["flights"])
    assert told == {"flights": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "clients retry until the topic is restored"


@pytest.mark.parametrize("way", ["its document is back", "it is forgotten"])
async def test_a_topic_is_no_longer_stray_once_it_is_restored_or_forgotten(cluster: ClusterOfNodes, way: str) -> None:
    one, two = await reported(cluster)
    if way == "its document is back":
        revision = await one.store.put(topic_key("flights"), encode(FLIGHTS))
    else:
        tombstone = TombstoneDocument("flights", FLIGHTS.topic_id, cluster.clock.now_ms())
        revision = await one.store.put(tombstone_key(FLIGHTS.topic_id), encode(tombstone))
    await two.image.reached(revision)
    assert stray_topics(two.image) == []


async def test_a_stray_log_that_is_no_longer_visible_is_still_reported(cluster: ClusterOfNodes) -> None:
    """The log dir of the log may be offline."""
    one, two = await reported(cluster)
    one.held = []
    await one.log_ends.report()
    await two.image.reached(await two.store.latest_revision())
    assert [each.name for each in stray_topics(two.image)] == ["flights"]


async def test_a_deleted_topic_does_not_return_after_its_tombstone_was_removed(cluster: ClusterOfNodes) -> None:
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
