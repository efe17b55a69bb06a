"""An unreadable document of the metadata store affects only itself: brokers start, and those that know it repair it."""

import logging
from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest
from metadata_cluster import ClusterOfNodes, a_topic, led

from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic, restored_topics
from barnabas_broker.metadata.documents import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    MalformedDocument,
    broker_key,
    encode,
    topic_key,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import HeldLog
from barnabas_broker.metadata.membership.membership import ensure_cluster_id
from barnabas_broker.metadata.model import BrokerRegistration, ClusterDocument, ProducerIdsDocument
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_clock import ManualClock

TORN = b'{"torn'
KEYS = (CONTROLLER_KEY, FEATURES_KEY, PRODUCER_IDS_KEY, broker_key(1), broker_key(2), topic_key("a"))


async def test_a_broker_starts_with_unreadable_documents_and_logs_their_keys(
    cluster: ClusterOfNodes, caplog: pytest.LogCaptureFixture
) -> None:
    store = await SqliteStore.open(cluster.path, ManualClock())
    for key in KEYS:
        await store.put(key, TORN)
    await store.put(topic_key("b"), encode(a_topic("b", led(1))))
    await store.close()
    with caplog.at_level(logging.ERROR):
        (one,) = await cluster.start(1)
    for key in KEYS:
        assert f"cannot be read: {key}: " in caplog.text
    assert one.image.topics.keys() == {"b"}
    assert one.image.controller_id == 1
    first = (await one.writer.allocate_producer_ids()).start
    assert first >= cluster.clock.now_ms(), "no id may be allocated twice"
    (refused,) = (await one.writer.create_topics([NewTopic("a", 1, 1)])).values()
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.POLICY_VIOLATION
    assert "its metadata cannot be read" in str(refused)
    await one.until(lambda: one.image.unreadable.keys() == {FEATURES_KEY, broker_key(2), topic_key("a")})


async def test_a_broker_that_knows_a_document_replaces_its_unreadable_copy(cluster: ClusterOfNodes) -> None:
    (one,) = await cluster.start(1)
    await cluster.topics(a_topic("a", led(1)))
    await one.image.reached(await one.store.put(PRODUCER_IDS_KEY, encode(ProducerIdsDocument(5000))))
    for key in (PRODUCER_IDS_KEY, broker_key(1), topic_key("a")):
        before = one.image.document(key)
        await one.image.reached(await one.store.put(key, TORN))
        await one.until(lambda: not one.image.lost and not one.image.unreadable)
        assert one.image.document(key) == before


async def test_an_unreadable_cluster_id_is_restored_only_from_the_log_dirs(
    cluster: ClusterOfNodes,
) -> None:
    store = await SqliteStore.open(cluster.path, ManualClock())
    await store.put(CLUSTER_KEY, TORN)
    with pytest.raises(MalformedDocument, match=r"`cluster` of the metadata store cannot be read.*meta\.properties"):
        await ensure_cluster_id(store, Random(1))
    assert await ensure_cluster_id(store, Random(1), "of the log dirs") == "of the log dirs"
    found = await store.get(CLUSTER_KEY)
    assert found is not None
    assert found.value == encode(ClusterDocument("of the log dirs"))
    await store.close()


BROKER = BrokerRegistration(broker_id=1, incarnation_id=UUID(int=1), listeners=(Endpoint("PLAINTEXT", "host", 9092),))
OUT_OF_RANGE = [
    (topic_key("a"), b'"leader_epoch":7', b'"leader_epoch":-9223372036854775808'),
    (topic_key("a"), b'"leader_epoch":7', b'"leader_epoch":2147483648'),
    (topic_key("a"), b'"leader":1', b'"leader":-2'),
    (topic_key("a"), b'"replicas":[1]', b'"replicas":[2147483648]'),
    (broker_key(1), b'"broker_id":1', b'"broker_id":-1'),
    (broker_key(1), b'"port":9092', b'"port":65536'),
]


@pytest.mark.parametrize(("key", "old", "new"), OUT_OF_RANGE)
def test_a_document_with_an_out_of_range_number_is_unreadable(key: str, old: bytes, new: bytes) -> None:
    good = encode(a_topic("a", led(1, epoch=7)) if key == topic_key("a") else BROKER)
    for value, unreadable in ((good, False), (good.replace(old, new), True)):
        image = MetadataImage()
        image.apply_listing(Listing(1, [Document(key, value, 1)]))
        assert (key in image.unreadable) is unreadable


async def test_a_mutated_document_does_not_affect_other_documents_in_the_image(cluster: ClusterOfNodes) -> None:
    one = await cluster.node(1)
    one.held = [HeldLog("stray", UUID(int=9), 0, 5, 100, Kept.ALL)]
    await one.start()
    await cluster.topics(a_topic("a", led(1), led(1)), a_topic("b", led(1), retention_ms="5"))
    await one.writer.create_topics([NewTopic("gone", 1, 1)])
    await one.writer.delete_topics(["gone"])
    await one.writer.allocate_producer_ids()
    real = (await one.store.listing()).documents
    random = Random(25)
    for document in real:
        others = [each for each in real if each is not document]
        for value in mutations(document.value, random):
            image = MetadataImage()
            image.apply_listing(Listing(1, [*others, Document(document.key, value, 1)]))
            assert all(image.stored(each.key) is not None for each in others)
            restored_topics(image, parse_broker_config({"node.id": "1", "log.dirs": "/data"}), accepts_loss=True)
            image.apply_listing(Listing(2, real))
            assert not image.unreadable


def mutations(value: bytes, random: Random) -> Iterator[bytes]:
    """Yield values with a changed byte, cut off, or with repeated bytes; and with texts in place of numbers."""
    for _ in range(20):
        at = random.randrange(len(value))
        yield value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
        yield value[:at]
        yield value[:at] + value[at : at + 9] + value[at:]
    yield from (b"", b"null", b"[]", b"{}", b"\xff\xfe", value.replace(b"1", b'"x"'), value.replace(b"1", b"-1"))
