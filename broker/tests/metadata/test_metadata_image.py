"""The image notifies listeners of changes, and always agrees with the store."""

from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import a_tombstone, a_topic, changes

from barnabas_broker.metadata.documents import (
    AnyDocument,
    ImageChange,
    MalformedDocument,
    broker_configs_key,
    broker_key,
    decode,
    encode,
    tombstone_key,
    topic_key,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    BrokerRegistration,
    ClusterDocument,
    ConfigDocument,
    ControllerDocument,
    PartitionState,
    ProducerIdsDocument,
    TombstoneDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    Change,
    Changes,
    Document,
    Listing,
)
from barnabas_core.config.listeners import Endpoint


def test_documents_are_encoded_as_readable_json() -> None:
    topic = TopicDocument("a", UUID(int=7), (PartitionState((1, 0), 1, 3, (1,)),), {"retention.ms": "5"})
    assert encode(topic) == (
        b'{"name":"a","topic_id":"00000000-0000-0000-0000-000000000007","partitions":[{"replicas":[1,0],"leader":1,'
        b'"leader_epoch":3,"isr":[1]}],"configs":{"retention.ms":"5"}}'
    )
    assert decode("topics/a", encode(topic)) == topic
    broker = BrokerRegistration(1, UUID(int=1), (Endpoint("A", "h", 9092),), "rack", ("/a", "/b"))
    assert decode("brokers/1", encode(broker)) == broker


def test_documents_with_unknown_keys_are_ignored_and_malformed_ones_refused() -> None:
    assert decode("later/1", b"anything") is None
    with pytest.raises(MalformedDocument, match="topics/a"):
        decode("topics/a", b'{"name":1}')


def test_a_document_with_a_text_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(MalformedDocument, match="topics/a"):
        decode("topics/a", b'{"name":"\xf2"}')


def at_epochs(topic: TopicDocument, *epochs: int, leader_epoch: int = 3) -> TopicDocument:
    states = [PartitionState((1, 2), 1, leader_epoch, (1, 2), partition_epoch=epoch) for epoch in epochs]
    return msgspec.structs.replace(topic, partitions=tuple(states))


def test_a_vanished_document_stays_in_the_image_until_it_is_restored() -> None:
    image = MetadataImage()
    heard: list[ImageChange] = []
    there: list[tuple[str, AnyDocument]] = [
        (topic_key("a"), a_topic("a", 1)),
        (broker_key(1), BrokerRegistration(1, UUID(int=1), ())),
        (broker_configs_key("1"), ConfigDocument({"a": "1"})),
        ("cluster", ClusterDocument("the-id")),
        ("controller", ControllerDocument(1, 5)),
        ("producer-ids", ProducerIdsDocument(7000)),
    ]
    image.apply_changes(changes(*there))
    image.subscribe(heard.append)
    image.apply_changes(changes((topic_key("a"), None), begin=7))
    image.apply_listing(Listing(20, []))
    assert heard == [ImageChange(lost=True)] * 2
    assert image.lost == dict(there)
    assert image.topics == {"a": a_topic("a", 1)}
    assert (image.live_brokers(), image.cluster_id, image.controller_id) == ([1], "the-id", 1)
    assert image.configs_of_broker("1") == {"a": "1"}
    assert image.version(topic_key("a")) == 0
    image.apply_changes(changes(*there, begin=21))
    assert image.lost == {}


def test_a_tombstone_deletes_a_topic_whose_document_vanished_before() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 1)), (topic_key("a"), None)))
    image.apply_changes(changes(a_tombstone("a", 1), begin=3))
    assert (image.topics, image.lost) == ({}, {})


def test_a_tombstone_does_not_delete_a_recreated_topic() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 2)), (topic_key("a"), None), a_tombstone("a", 1)))
    assert (list(image.topics), list(image.lost)) == (["a"], [topic_key("a")])


def test_an_older_backup_with_a_deleted_topic_does_not_hide_a_later_topic_of_the_same_name() -> None:
    image = MetadataImage()
    deleted, later, (key, tombstone) = a_topic("a", 1), a_topic("a", 2), a_tombstone("a", 1)
    image.apply_changes(changes((topic_key("a"), deleted), (key, tombstone), (topic_key("a"), None)))
    image.apply_changes(changes((topic_key("a"), later), begin=4))
    image.apply_listing(Listing(2, [Document(topic_key("a"), encode(deleted), 1)]))
    assert (image.topics, image.topic_name(later.topic_id), image.deleting) == ({"a": later}, "a", {})
    assert (image.lost, image.tombstones) == (
        {topic_key("a"): later, key: tombstone},
        {deleted.topic_id: tombstone},
    )
    image.apply_changes(changes((key, tombstone), (topic_key("a"), later), begin=3))
    assert (image.topics, image.lost) == ({"a": later}, {})


def test_a_topic_missing_in_a_listing_with_its_tombstone_is_deleted() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 1))))
    key, tombstone = a_tombstone("a", 1)
    image.apply_listing(Listing(5, [Document(key, encode(tombstone), 4)]))
    assert (image.topics, image.lost) == ({}, {})


def test_a_broker_is_removed_only_after_it_was_unregistered() -> None:
    image = MetadataImage()
    gone = BrokerRegistration(1, UUID(int=1), (), fenced=True, is_unregistered=True)
    image.apply_changes(changes((broker_key(1), gone), (broker_key(1), None)))
    assert (image.brokers, image.lost) == ({}, {})


def test_newer_partition_states_win_when_an_older_topic_document_returns() -> None:
    image = MetadataImage()
    known, older = at_epochs(a_topic("a", 1), 4, 9, 2), at_epochs(a_topic("a", 1), 5, 8, leader_epoch=7)
    image.apply_changes(changes((topic_key("a"), known)))
    image.apply_changes(changes((topic_key("a"), older), begin=2))
    merged = image.topics["a"].partitions
    assert [(state.partition_epoch, state.leader_epoch) for state in merged] == [(5, 7), (9, 8), (2, 3)]
    assert image.lost == {topic_key("a"): image.topics["a"]}
    assert image.version(topic_key("a")) == 2


def test_the_next_producer_id_never_decreases() -> None:
    image = MetadataImage()
    image.apply_changes(changes(("producer-ids", ProducerIdsDocument(7000)), ("producer-ids", ProducerIdsDocument(10))))
    assert image.next_producer_id == 7000
    assert image.lost == {"producer-ids": ProducerIdsDocument(7000)}


def test_a_written_change_is_known_although_a_listing_lacks_it() -> None:
    """Otherwise a leader would wait for its change for ever."""
    image, heard = MetadataImage(), list[ImageChange]()
    before, key = a_topic("a", 1), topic_key("a")
    shrunk = msgspec.structs.replace(before.partitions[0], isr=(1,), partition_epoch=1)
    written = msgspec.structs.replace(before, partitions=(shrunk,))
    image.apply_changes(changes((key, before)))
    image.apply_listing(Listing(50, []))
    image.subscribe(heard.append)
    image.wrote(written)
    assert image.topics["a"] == image.lost[key] == written
    assert [change.changed for change in heard] == [(written,)]
    image.wrote(written)
    image.wrote(before)
    assert len(heard) == 1


def test_listeners_are_notified_of_created_changed_and_deleted_topics() -> None:
    image = MetadataImage()
    heard: list[ImageChange] = []
    image.subscribe(heard.append)
    small, grown, again = a_topic("a", 1), a_topic("a", 1, 2), a_topic("a", 2)
    image.apply_changes(changes((topic_key("a"), small)))
    image.apply_changes(changes((topic_key("a"), grown), begin=2))
    image.apply_changes(changes(a_tombstone("a", 1), (topic_key("a"), None), (topic_key("a"), again), begin=3))
    image.apply_changes(
        changes((topic_key("b"), a_topic("b", 3)), a_tombstone("b", 3), (topic_key("b"), None), begin=6)
    )
    image.apply_changes(changes(a_tombstone("a", 2), begin=9))
    image.apply_changes(changes((topic_key("a"), None), begin=10))
    assert heard == [
        ImageChange(created=(small,)),
        ImageChange(changed=(grown,)),
        ImageChange(created=(again,), deleted=(grown,), tombstones={UUID(int=1)}),
        ImageChange(tombstones={UUID(int=3)}),
        ImageChange(deleted=(again,), tombstones={UUID(int=2)}),
    ]
    assert (image.topics, image.topic_name(UUID(int=1)), image.topic_name(UUID(int=2))) == ({}, None, None)


def test_a_topic_stays_deleted_if_its_tombstone_vanishes_first() -> None:
    """A restored older etcd can have the topic without its deletion."""
    image = MetadataImage()
    topic, (key, tombstone) = a_topic("a", 1), a_tombstone("a", 1)
    image.apply_changes(changes((topic_key("a"), topic), (key, tombstone)))
    assert image.deleting == {"a": topic}
    image.apply_changes(Changes(3, [Change(3, key, None)]))
    assert (image.deleting, image.topics) == ({"a": topic}, {})
    assert (image.lost, image.tombstones) == ({key: tombstone}, {topic.topic_id: tombstone})
    image.apply_changes(Changes(4, [Change(4, key, encode(tombstone))]))
    assert image.lost == {}
    image.apply_changes(Changes(6, [Change(5, topic_key("a"), None), Change(6, key, None)]))
    assert (image.deleting, image.tombstones, image.lost) == ({}, {}, {})


def test_listeners_are_notified_of_brokers_and_configs() -> None:
    image = MetadataImage()
    heard: list[ImageChange] = []
    image.subscribe(heard.append)
    fenced = BrokerRegistration(2, UUID(int=2), (), fenced=True)
    image.apply_changes(
        changes(
            (broker_key(1), BrokerRegistration(1, UUID(int=1), ())),
            (broker_key(2), fenced),
            (broker_configs_key(""), ConfigDocument({"a": "1"})),
            (broker_configs_key("2"), ConfigDocument({"a": "2"})),
            ("cluster", ClusterDocument("the-id")),
            ("controller", ControllerDocument(1, 5)),
        )
    )
    brokers, seen_alive = {1, 2}, {1}
    configs = {"", "2"}
    assert heard == [ImageChange(brokers=brokers, seen_alive=seen_alive, configs=configs, controller=True)]
    assert (image.cluster_id, image.controller_id, image.live_brokers()) == ("the-id", 1, [1])
    assert image.configs_of_broker("") == {"a": "1"}
    assert image.configs_of_broker("2") == {"a": "2"}
    assert image.configs_of_broker("1") == {}


def test_a_malformed_document_does_not_replace_the_known_one() -> None:
    image = MetadataImage()
    good = a_topic("a", 1)
    image.apply_changes(changes((topic_key("a"), good)))
    image.apply_changes(Changes(2, [Change(2, topic_key("a"), b"{broken")]))
    assert image.topics == {"a": good}
    assert image.revision == 2


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int | None]]:
    return draw(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(1, 5))), max_size=30))


def kept_by_a_listener(image: MetadataImage) -> dict[str, TopicDocument]:
    """Return the topics that a listener knows from changes alone."""
    kept: dict[str, TopicDocument] = {}

    def keep(change: ImageChange) -> None:
        for topic in change.deleted:
            assert kept.pop(topic.name).topic_id == topic.topic_id
        for topic in change.created:
            assert topic.name not in kept
            kept[topic.name] = topic
        for topic in change.changed:
            assert kept[topic.name].topic_id == topic.topic_id
            kept[topic.name] = topic

    image.subscribe(keep)
    return kept


@given(histories(), st.data())
def test_a_listing_and_a_watch_give_the_same_image(history: list[tuple[str, int | None]], data: st.DataObject) -> None:
    """The batches of changes, and the places of listings, are arbitrary; listeners know the same topics."""
    followed = MetadataImage()
    kept = kept_by_a_listener(followed)
    stored: dict[str, Document] = {}
    batch: list[Change] = []
    for revision, (name, number) in enumerate(history, start=1):
        key = topic_key(name)
        value = None if number is None else encode(a_topic(name, ord(name) * 10 + number, revision))
        batch.append(Change(revision, key, value))
        before = decode(key, stored[key].value) if key in stored else None
        if isinstance(before, TopicDocument) and (number is None or before.topic_id.int != ord(name) * 10 + number):
            tombstone = tombstone_key(before.topic_id)
            buried = encode(TombstoneDocument(name, before.topic_id, 0))
            stored[tombstone] = Document(tombstone, buried, revision)
            batch.insert(len(batch) - 1, Change(revision, tombstone, buried))
        if value is None:
            stored.pop(key, None)
        else:
            stored[key] = Document(key, value, revision)
        step = data.draw(st.sampled_from(["wait", "follow", "list"]))
        if step == "list":
            followed.apply_listing(Listing(revision, list(stored.values())))
        elif step == "follow":
            followed.apply_changes(Changes(revision, batch))
        if step != "wait":
            batch = []
    followed.apply_changes(Changes(len(history), batch))
    listed = MetadataImage()
    listed.apply_listing(Listing(len(history), list(stored.values())))
    assert followed.topics == listed.topics == kept
    for topic in kept.values():
        assert followed.topic_name(topic.topic_id) == topic.name
    for key in map(topic_key, "abc"):
        assert followed.version(key) == listed.version(key)
