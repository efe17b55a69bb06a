"""Dead letters of share groups: where they go, what they contain, and which ones are there already."""

from uuid import UUID

import pytest

from barnabas_broker.coordinators.share_delivery.dead_letters import (
    BrokenSetting,
    DeadLetter,
    Destination,
    Missing,
    SourcePartition,
    comes_round,
    decoded,
    destination,
    in_batches,
    named_offsets,
    records_of,
)
from barnabas_broker.metadata.documents import encode, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_broker.wire.records import Header, Record, encode_batch
from barnabas_core.config.broker_config import parse_broker_config

SOURCE = SourcePartition("flights", 5, "billing")
LETTERS = [DeadLetter(7, 1, is_rejected=True), DeadLetter(9, 5, is_rejected=False)]


def image_with(*topics: TopicDocument) -> MetadataImage:
    image = MetadataImage()
    image.apply_listing(Listing(1, [Document(topic_key(each.name), encode(each), 1) for each in topics]))
    return image


def topic(name: str, enabled: str = "true") -> TopicDocument:
    states = tuple(PartitionState((leader,), leader, 0, (leader,)) for leader in (1, 2, 3))
    return TopicDocument(name, UUID(int=8), states, {"errors.deadletterqueue.group.enable": enabled})


def where(name: str, *topics: TopicDocument, **settings: str) -> Destination | Missing:
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    config = parse_broker_config({"node.id": "1", "log.dirs": "/logs", **properties})
    return destination(name, SOURCE, image_with(*topics), config)


def test_dead_letters_of_a_partition_go_to_one_partition() -> None:
    assert where("dlq", topic("dlq")) == Destination("dlq", UUID(int=8), 2, 3)


@pytest.mark.parametrize(
    ("name", "topics", "why"),
    [
        ("", [], "is empty"),
        ("__internal", [topic("__internal")], "begins with __"),
        ("flights", [topic("flights")], "is the source"),
        ("dlq.x", [], "does not exist"),
        ("dlq", [topic("dlq", "false")], "group.enable=true"),
    ],
)
def test_a_broken_setting_has_its_reason(name: str, topics: list[TopicDocument], why: str) -> None:
    with pytest.raises(BrokenSetting, match=why):
        where(name, *topics)


def test_a_missing_topic_with_the_prefix_is_created_if_that_is_allowed() -> None:
    allowed = {"errors_deadletterqueue_auto_create_topics_enable": "true"}
    assert where("dlq.x", **allowed) == Missing("dlq.x")
    with pytest.raises(BrokenSetting, match="not created by itself"):
        where("letters", **allowed)


def test_a_dead_letter_names_its_record_and_copies_its_headers_after_its_own() -> None:
    copy = Record(0, 1, b"key", b"value", [Header("trace", b"1")])
    copied, bare = records_of(SOURCE, LETTERS, {7: copy}, now_ms=42)
    assert (copied.timestamp_ms, copied.key, copied.value) == (42, b"key", b"value")
    assert copied.headers == [
        Header("__dlq.errors.topic", b"flights"),
        Header("__dlq.errors.partition", b"5"),
        Header("__dlq.errors.offset", b"7"),
        Header("__dlq.errors.group", b"billing"),
        Header("__dlq.errors.delivery.count", b"1"),
        Header("__dlq.errors.message", b"Offset rejected by client."),
        Header("trace", b"1"),
    ]
    assert (bare.key, bare.value, len(bare.headers)) == (None, None, 6)
    assert bare.headers[-1].value == b"Offset delivery count exceeded the threshold."


def test_a_record_does_not_grow_in_a_circle_of_groups_and_keeps_its_other_headers() -> None:
    back = SourcePartition("dlq.flights", 2, "clerks")
    record, sizes = Record(0, 1, b"key", b"value", [Header("trace", b"1")]), []
    for turn in range(5):
        source = (SOURCE, back)[turn % 2]
        (record,) = records_of(source, LETTERS[:1], {7: record}, 0)
        sizes.append(len(record.headers))
    assert (sizes, record.headers[-1], record.value) == ([7, 13, 13, 13, 13], Header("trace", b"1"), b"value")
    assert [each.value for each in record.headers if each.key.endswith("group")] == [b"billing", b"clerks"]


def test_a_dead_letter_of_a_dead_letter_comes_round_only_if_it_goes_to_the_topic_of_its_record() -> None:
    (letter,) = records_of(SOURCE, LETTERS[:1], {}, 0)
    assert comes_round(letter, "flights")
    assert not comes_round(letter, "dlq.dlq.flights")
    assert not comes_round(Record(0, 1, None, None, [Header("__dlq.errors.offset", b"7")]), "flights")


def test_batches_fit_the_topic_and_a_record_that_does_not_fit_alone_is_only_named() -> None:
    copies = {7: Record(0, 1, None, b"x" * 5000), 9: Record(0, 1, None, b"y" * 500)}
    batches = list(in_batches(records_of(SOURCE, LETTERS * 2, copies, 0), 2000))
    assert [[len(each.value or b"") for each in batch] for batch in batches] == [[0, 500], [0, 500]] or all(
        len(encode_batch(batch)) <= 2000 for batch in batches
    )
    assert all(len(encode_batch(batch)) <= 2000 for batch in batches)
    assert sum(map(len, batches)) == 4


def test_the_dead_letters_of_a_partition_and_group_are_found_again() -> None:
    (batch,) = in_batches(records_of(SOURCE, LETTERS, {}, 0), 100_000)
    others = [
        *records_of(SOURCE._replace(group_id="other"), LETTERS, {}, 0),
        *records_of(SOURCE._replace(partition=6), LETTERS, {}, 0),
        Record(0, 0, b"foreign", None, [Header("__dlq.errors.topic", b"flights")]),
    ]
    (foreign,) = in_batches(others, 100_000)
    data = encode_batch(foreign) + encode_batch(batch, base_offset=len(foreign))
    assert named_offsets(memoryview(data), SOURCE) == ({7, 9}, len(foreign) + 2)
    assert named_offsets(memoryview(data[:-1]), SOURCE) == (set(), len(foreign))


def test_a_record_whose_own_headers_look_like_those_of_a_dead_letter_is_not_taken_for_one() -> None:
    copy = Record(0, 1, None, None, [Header("__dlq.errors.offset", b"99")])
    (batch,) = in_batches(records_of(SOURCE, LETTERS[:1], {7: copy}, 0), 100_000)
    assert named_offsets(memoryview(encode_batch(batch)), SOURCE)[0] == {7}


def test_records_of_the_source_that_cannot_be_read_are_left_out() -> None:
    good = encode_batch([Record(0, 0, b"a", b"1"), Record(1, 0, b"b", b"2")], base_offset=5)
    broken = encode_batch([Record(0, 0, b"c", b"3")], base_offset=7)
    broken[-1] ^= 0xFF
    broken[61] ^= 0x40
    found = decoded(memoryview(bytes(good + broken)), 6, 7)
    assert {offset: record.key for offset, record in found.items()} == {6: b"b"}
