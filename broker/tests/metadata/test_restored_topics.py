"""`barnabas restore-metadata` restores topics from the logs that brokers report, unless a person must decide."""

from collections.abc import Mapping
from uuid import UUID

import msgspec
import pytest
from metadata_cluster import a_topic, led

from barnabas_broker.metadata.controller.decisions.create_topics import (
    KEEPS_ALL,
    NotRestored,
    Restored,
    restored_topics,
)
from barnabas_broker.metadata.documents import (
    AnyDocument,
    broker_key,
    documents_of,
    encode,
    laid_out,
    log_ends_key,
    part_keys,
    topic_key,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import part_of
from barnabas_broker.metadata.model import (
    NO_LEADER,
    BrokerRegistration,
    LogEnd,
    LogEndsDocument,
    PartitionState,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_core.config.broker_config import parse_broker_config

CONFIG = parse_broker_config({"node.id": "1", "log.dirs": "/data"})
FLIGHTS = UUID(int=7)
Logs = Mapping[int, tuple[LogEnd, ...]]
"""The log ends of each broker."""


def end(partition: int, epoch: int, offset: int) -> LogEnd:
    return LogEnd(partition, epoch, offset, offset)


def reports(logs: Logs, topic_id: UUID = FLIGHTS, name: str = "flights") -> dict[str, AnyDocument]:
    """Return documents of live brokers that report these logs of a topic that the metadata lacks."""
    documents: dict[str, AnyDocument] = {}
    for broker, ends in logs.items():
        documents[broker_key(broker)] = BrokerRegistration(broker, UUID(int=broker), ())
        report = LogEndsDocument(0, {topic_id: msgspec.Raw(msgspec.json.encode(ends))}, {topic_id: name})
        documents[log_ends_key(broker, part_of(topic_id, 0))] = report
    return documents


def image_of(*parts: Mapping[str, AnyDocument]) -> MetadataImage:
    image = MetadataImage()
    changes = [Change(1, key, encode(document)) for each in parts for key, document in each.items()]
    image.apply_changes(Changes(1, changes))
    return image


def decided(image: MetadataImage, *, accepts_loss: bool = False) -> Restored | NotRestored:
    (only,) = restored_topics(image, CONFIG, accepts_loss=accepts_loss)
    return only


def restored(image: MetadataImage, *, accepts_loss: bool = False) -> TopicDocument:
    found = decided(image, accepts_loss=accepts_loss)
    assert isinstance(found, Restored), found
    return found.document


def why_not(image: MetadataImage) -> str:
    found = decided(image)
    assert isinstance(found, NotRestored)
    return found.why


def test_the_longest_log_of_the_latest_epoch_leads_with_equal_logs_in_sync() -> None:
    logs = {1: (end(0, 5, 100), end(1, 3, 7)), 2: (end(0, 6, 90), end(1, 3, 7)), 3: (end(0, 6, 80), end(1, 3, 7))}
    topic = restored(image_of(reports(logs)))
    assert (topic.topic_id, topic.configs) == (FLIGHTS, KEEPS_ALL)
    first, second = topic.partitions
    assert first == PartitionState((1, 2, 3), 2, 7, (2,), restored_epoch=7)
    assert second == PartitionState((2, 3, 1), 2, 4, (2, 3, 1), restored_epoch=4)


def test_a_restored_partition_waits_for_a_leader_that_is_not_alive() -> None:
    fenced = {broker_key(2): BrokerRegistration(2, UUID(int=2), (), fenced=True)}
    logs = {1: (end(0, 5, 100),), 2: (end(0, 5, 101),)}
    (state,) = restored(image_of(reports(logs), fenced)).partitions
    assert (state.leader, state.isr) == (NO_LEADER, (2,))


def test_a_restored_offsets_topic_is_compacted() -> None:
    topic = restored(image_of(reports({1: (end(0, 5, 100),)}, name="__consumer_offsets")))
    assert topic.configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize(
    ("logs", "why"),
    [
        (
            {1: (end(0, 1, 5), end(2, 1, 5))},
            "no registered broker has a log of partition 1: start the brokers that have the missing logs",
        ),
        (
            {1: (end(0, 1, 5), end(1, 1, 5)), 2: (end(0, 1, 5),)},
            "partition 1 has logs on 1 brokers, other partitions on 2: start",
        ),
    ],
)
def test_a_topic_with_missing_logs_is_restored_only_if_the_loss_is_accepted(logs: Logs, why: str) -> None:
    image = image_of(reports(logs))
    assert why_not(image).startswith(why)
    topic = restored(image, accepts_loss=True)
    assert all(state.leader == 1 for state in topic.partitions)


def test_topics_with_the_same_name_are_not_restored() -> None:
    logs = {1: (end(0, 1, 5),)}
    image = image_of(reports(logs), reports({2: (end(0, 1, 5),)}, UUID(int=8)))
    both = restored_topics(image, CONFIG, accepts_loss=True)
    assert [isinstance(each, NotRestored) for each in both] == [True, True]
    beside = image_of(reports(logs), {topic_key("flights"): a_topic("flights", led(1))})
    assert "another topic has the same name" in why_not(beside)


def test_partitions_missing_in_an_older_document_are_added() -> None:
    older = TopicDocument("flights", FLIGHTS, (led(1),), {"retention.ms": "5"})
    logs = {1: (end(0, 9, 5), end(1, 2, 8))}
    topic = restored(image_of(reports(logs), {topic_key("flights"): older}))
    assert topic.configs == {"retention.ms": "5"}
    assert topic.partitions == (led(1), PartitionState((1,), 1, 3, (1,), restored_epoch=3))


def test_restoring_a_missing_part_keeps_the_rest_of_a_topic_unchanged() -> None:
    whole = laid_out(TopicDocument("flights", FLIGHTS, (led(1, epoch=5),) * 250), splits=True)
    documents: dict[str, AnyDocument] = dict(documents_of(whole, lambda _: None))
    del documents[part_keys(whole)[0]]
    logs = {1: tuple(end(number, 6, 10) for number in range(250))}
    topic = restored(image_of(reports(logs), documents))
    assert topic.parts == whole.parts
    assert topic.partitions[:100] + topic.partitions[200:] == whole.partitions[:150]
    assert {state.leader_epoch for state in topic.partitions[100:200]} == {7}


def test_logs_of_unregistered_brokers_are_not_restored() -> None:
    documents = reports({1: (end(0, 1, 5),)})
    del documents[broker_key(1)]
    assert (
        why_not(image_of(documents))
        == "no registered broker has a log of the topic: start the brokers that have logs of the topic"
    )
