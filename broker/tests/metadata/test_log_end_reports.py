"""Reports of log end offsets while a broker runs."""

from pathlib import Path
from uuid import UUID

import msgspec
from metadata_cluster import a_topic
from one_replica import FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.app.log_tasks import LogEndReports
from barnabas_broker.metadata.controller.decisions.elections import ElectionType, Rules, decide_election
from barnabas_broker.metadata.documents import encode, log_ends_key, topic_key
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import KnownEnds, part_of
from barnabas_broker.metadata.model import (
    NO_LEADER,
    BrokerRegistration,
    LogEnd,
    LogEndsDocument,
    PartitionState,
    TopicDocument,
)
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from harness.manual_clock import ManualClock

LED = PartitionState((HERE, OTHER, 3), 3, 4, (3,), partition_epoch=4)
LOST = PartitionState((HERE, OTHER, 3), NO_LEADER, 5, (), partition_epoch=5, last_known_leader=3, lacking=(3,))


def flights(state: PartitionState) -> TopicDocument:
    return msgspec.structs.replace(a_topic(FLIGHTS.topic, state), topic_id=UUID(int=7))


async def test_the_longest_log_leads_although_a_shorter_one_was_reported_later(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "metadata.sqlite", ManualClock())
    broker, image = Broker(tmp_path, led(HERE, 4, HERE)), MetadataImage()
    try:
        await store.put(topic_key(FLIGHTS.topic), encode(flights(LED)))
        await image_feed.load(image, store)
        news = LogEndReports(HERE, store, image, broker.logs)
        broker.append(2)
        await news.begin_incarnation(9, undealt_epoch=None)
        broker.append(8)
        shorter = LogEndsDocument(8, {UUID(int=7): msgspec.Raw(msgspec.json.encode((LogEnd(0, 4, 5, 5),)))})
        await store.put(log_ends_key(OTHER, part_of(UUID(int=7), 0)), encode(shorter))
        revision = await store.put(topic_key(FLIGHTS.topic), encode(flights(LOST)))
        await image_feed.load(image, store)
        await news.report_leaderless()
        assert await store.latest_revision() == revision + 1
        await image_feed.load(image, store)
        brokers = {each: BrokerRegistration(each, UUID(int=each), ()) for each in (HERE, OTHER)}
        ends = KnownEnds(image).of_replicas(UUID(int=7), 0, LOST.replicas)
        assert decide_election(LOST, ElectionType.UNCLEAN, Rules(brokers, log_ends=ends)).leader == HERE
        broker.append(1)
        await news.report_leaderless()
        assert await store.latest_revision() == revision + 1, "no other partition lost its leader"
    finally:
        await store.close()
