"""The image: what listeners hear, and that it is the store's state whatever happened in between."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.metadata import image_feed
from barnabas_broker.metadata.documents import (
    AnyDocument,
    MalformedDocument,
    broker_configs_key,
    broker_key,
    decode,
    encode,
    tombstone_key,
    topic_key,
)
from barnabas_broker.metadata.image import MetadataImage
from barnabas_broker.metadata.image_change import ImageChange
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
from barnabas_broker.metadata.store import (
    Change,
    Changes,
    Document,
    HistoryCompacted,
    Listing,
    StoreUnavailable,
    Write,
)
from barnabas_broker.metadata.transitions import Planned, Transitions
from barnabas_core.config.listeners import Endpoint


def a_topic(name: str, number: int, partitions: int = 1) -> TopicDocument:
    return TopicDocument(name, UUID(int=number), (PartitionState((0,), 0, 0, (0,)),) * partitions)


def changes(*documents: tuple[str, AnyDocument | None], begin: int = 1) -> Changes:
    numbered = [
        Change(begin + n, key, None if document is None else encode(document))
        for n, (key, document) in enumerate(documents)
    ]
    return Changes(numbered[-1].revision, numbered)


def test_documents_are_readable_json() -> None:
    topic = TopicDocument("a", UUID(int=7), (PartitionState((1, 0), 1, 3, (1,)),), {"retention.ms": "5"})
    assert encode(topic) == (
        b'{"name":"a","topic_id":"00000000-0000-0000-0000-000000000007","partitions":[{"replicas":[1,0],"leader":1,'
        b'"leader_epoch":3,"isr":[1]}],"configs":{"retention.ms":"5"}}'
    )
    assert decode("topics/a", encode(topic)) == topic
    broker = BrokerRegistration(1, UUID(int=1), (Endpoint("A", "h", 9092),), "rack", ("/a", "/b"))
    assert decode("brokers/1", encode(broker)) == broker


def test_a_document_of_a_later_version_is_left_alone() -> None:
    assert decode("acls/1", b"anything") is None
    with pytest.raises(MalformedDocument, match="topics/a"):
        decode("topics/a", b'{"name":1}')


def a_tombstone(name: str, number: int) -> tuple[str, TombstoneDocument]:
    topic_id = UUID(int=number)
    return tombstone_key(topic_id), TombstoneDocument(name, topic_id, 5, 1)


def at_epochs(topic: TopicDocument, *epochs: int, leader_epoch: int = 3) -> TopicDocument:
    states = [PartitionState((1, 2), 1, leader_epoch, (1, 2), partition_epoch=epoch) for epoch in epochs]
    return msgspec.structs.replace(topic, partitions=tuple(states))


def test_what_vanishes_without_a_word_stays_and_is_lost_until_it_is_written_anew() -> None:
    image = MetadataImage()
    heard: list[ImageChange] = []
    there = [
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


def test_a_tombstone_for_what_vanished_before_ends_it() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 1)), (topic_key("a"), None)))
    image.apply_changes(changes(a_tombstone("a", 1), begin=3))
    assert (image.topics, image.lost) == ({}, {})


def test_a_tombstone_ends_no_topic_that_was_made_again() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 2)), (topic_key("a"), None), a_tombstone("a", 1)))
    assert (list(image.topics), list(image.lost)) == (["a"], [topic_key("a")])


def test_a_listing_may_bring_a_tombstone_with_the_disappearance() -> None:
    image = MetadataImage()
    image.apply_changes(changes((topic_key("a"), a_topic("a", 1))))
    key, tombstone = a_tombstone("a", 1)
    image.apply_listing(Listing(5, [Document(key, encode(tombstone), 4)]))
    assert (image.topics, image.lost) == ({}, {})


def test_a_broker_goes_only_when_it_was_unregistered() -> None:
    image = MetadataImage()
    gone = BrokerRegistration(1, UUID(int=1), (), fenced=True, is_unregistered=True)
    image.apply_changes(changes((broker_key(1), gone), (broker_key(1), None)))
    assert (image.brokers, image.lost) == ({}, {})


def test_of_an_older_topic_the_newer_states_count() -> None:
    image = MetadataImage()
    known, older = at_epochs(a_topic("a", 1), 4, 9, 2), at_epochs(a_topic("a", 1), 5, 8, leader_epoch=7)
    image.apply_changes(changes((topic_key("a"), known)))
    image.apply_changes(changes((topic_key("a"), older), begin=2))
    merged = image.topics["a"].partitions
    assert [(state.partition_epoch, state.leader_epoch) for state in merged] == [(5, 7), (9, 8), (2, 3)]
    assert image.lost == {topic_key("a"): image.topics["a"]}
    assert image.version(topic_key("a")) == 2


def test_producer_ids_never_go_back() -> None:
    image = MetadataImage()
    image.apply_changes(changes(("producer-ids", ProducerIdsDocument(7000)), ("producer-ids", ProducerIdsDocument(10))))
    assert image.next_producer_id == 7000
    assert image.lost == {"producer-ids": ProducerIdsDocument(7000)}


def test_what_was_written_is_known_though_a_listing_lacks_it() -> None:
    """Else a leader would wait for its change for ever."""
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


class WatchedLate:
    """A store that has taken a write, lost the document, and forgotten its history before anybody was told."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    async def write(self, writes: Sequence[Write]) -> list[int]:
        self._image.apply_listing(Listing(50, []))
        return [49 for _ in writes]


@pytest.mark.anyio
async def test_a_change_that_vanishes_at_once_is_still_known_to_who_made_it() -> None:
    image = MetadataImage()
    before = a_topic("a", 1)
    image.apply_changes(changes((topic_key("a"), before)))
    configured = msgspec.structs.replace(before, configs={"retention.ms": "5"}, configs_epoch=1)
    transitions = Transitions(WatchedLate(image), image)  # type: ignore[arg-type]
    await transitions.carry_out(["a"], lambda _: {"a": Planned(topic_key("a"), configured)})
    assert image.topics["a"] == configured
    assert image.lost == {topic_key("a"): configured}


@pytest.mark.anyio
async def test_who_waits_for_a_revision_of_a_store_that_was_put_back_waits_no_more() -> None:
    image = MetadataImage()
    image.apply_listing(Listing(50, []))
    waiting = asyncio.create_task(image.reached(51))
    await asyncio.sleep(0)
    image.apply_listing(Listing(20, []))
    await waiting


def test_listeners_hear_of_topics_that_come_change_and_go() -> None:
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
        ImageChange(created=(again,), deleted=(grown,), buried=frozenset({UUID(int=1)})),
        ImageChange(buried=frozenset({UUID(int=3)})),
        ImageChange(deleted=(again,), buried=frozenset({UUID(int=2)})),
    ]
    assert (image.topics, image.topic_name(UUID(int=1)), image.topic_name(UUID(int=2))) == ({}, None, None)


def test_listeners_hear_of_brokers_and_configs() -> None:
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
    assert heard == [ImageChange(brokers=frozenset({1, 2}), configs=frozenset({"", "2"}), controller=True)]
    assert (image.cluster_id, image.controller_id, image.live_brokers()) == ("the-id", 1, [1])
    assert image.configs_of_broker("") == {"a": "1"}
    assert image.configs_of_broker("2") == {"a": "2"}
    assert image.configs_of_broker("1") == {}


def test_a_document_that_cannot_be_read_leaves_what_was_there() -> None:
    image = MetadataImage()
    good = a_topic("a", 1)
    image.apply_changes(changes((topic_key("a"), good)))
    image.apply_changes(Changes(2, [Change(2, topic_key("a"), b"{broken")]))
    assert image.topics == {"a": good}
    assert image.revision == 2


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, int | None]]:
    return draw(st.lists(st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(1, 5))), max_size=30))


@settings(deadline=None)
@given(histories(), st.data())
def test_listing_and_following_give_the_same_image(history: list[tuple[str, int | None]], data: st.DataObject) -> None:
    """However the changes are cut into batches, and wherever a listing comes in between, and listeners can keep up."""
    followed = MetadataImage()
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

    followed.subscribe(keep)
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


@pytest.mark.anyio
async def test_waiters_return_when_their_revision_is_reached() -> None:
    image = MetadataImage()
    image.apply_listing(Listing(5, []))
    await image.reached(5)
    late, early = asyncio.create_task(image.reached(8)), asyncio.create_task(image.reached(7))
    cancelled = asyncio.create_task(image.reached(7))
    await asyncio.sleep(0)
    cancelled.cancel()
    image.apply_changes(Changes(7, []))
    await early
    assert not late.done()
    image.apply_changes(Changes(9, []))
    await late


class ScriptedStore:
    """Answers listings and watches from a script; the rest of a store is not used by the feed."""

    def __init__(self, listings: Sequence[Listing], watches: Sequence[Sequence[Changes | Exception]]) -> None:
        self.listings = list(listings)
        self.watches = list(watches)
        self.watched_from: list[int] = []

    async def listing(self, prefix: str) -> Listing:
        assert prefix == ""
        return self.listings.pop(0)

    async def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        self.watched_from.append(from_revision)
        for step in self.watches.pop(0) if self.watches else ():
            if isinstance(step, Exception):
                raise step
            yield step


@pytest.mark.anyio
async def test_the_feed_goes_on_after_the_store_was_away_and_lists_where_history_is_gone() -> None:
    store = ScriptedStore(
        [Listing(1, []), Listing(50, [Document(topic_key("z"), encode(a_topic("z", 26)), 50)])],
        [
            [changes((topic_key("a"), a_topic("a", 1)), begin=2), StoreUnavailable("away")],
            [StoreUnavailable("still away")],
            [HistoryCompacted("too long")],
            [changes((topic_key("y"), a_topic("y", 25)), a_tombstone("a", 1), begin=51)],
        ],
    )
    image = MetadataImage()
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    await image_feed.load(image, store)  # type: ignore[arg-type]
    feed = image_feed.ImageFeed(image, store, sleep)  # type: ignore[arg-type]
    await feed.follow()
    assert store.watched_from == [1, 2, 2, 50]
    assert sorted(image.topics) == ["y", "z"]
    assert slept == [image_feed.RETRY_S] * 2


def test_a_topic_is_gone_as_soon_as_it_has_a_tombstone_though_its_document_is_still_there() -> None:
    image, topic, again = MetadataImage(), a_topic("a", 1), a_topic("a", 2)
    image.apply_changes(changes((topic_key("a"), topic)))
    heard: list[ImageChange] = []
    image.subscribe(heard.append)
    tombstone = TombstoneDocument("a", topic.topic_id, 5)
    image.apply_changes(changes((tombstone_key(topic.topic_id), tombstone), begin=2))
    assert (image.topics, image.topic_name(topic.topic_id), image.buried) == ({}, None, {"a": topic})
    assert heard[0].deleted == (topic,)
    image.apply_changes(changes((topic_key("a"), topic), begin=3))  # Written by somebody who had not heard.
    assert (image.topics, image.buried, len(heard)) == ({}, {"a": topic}, 1)
    image.apply_changes(changes((topic_key("a"), again), begin=4))
    assert (image.topics, image.buried) == ({"a": again}, {})
    assert heard[1].created == (again,)


@pytest.mark.anyio
async def test_a_store_that_forgets_faster_than_it_tells_is_not_listed_in_a_spin() -> None:
    gone = HistoryCompacted("too long")
    told = changes((topic_key("a"), a_topic("a", 1)), begin=10)
    store = ScriptedStore([Listing(n, []) for n in range(1, 6)], [[gone], [gone], [gone], [told, gone], []])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    image = MetadataImage()
    await image_feed.load(image, store)  # type: ignore[arg-type]
    await image_feed.ImageFeed(image, store, sleep).follow()  # type: ignore[arg-type]
    assert slept == [image_feed.RETRY_S] * 2, "the first time at once, and again once something was told"
    assert store.listings == []
