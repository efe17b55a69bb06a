"""The image follows its store through waits, new listings, and restored backups."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from uuid import UUID

import msgspec
import pytest
from image_samples import a_tombstone, a_topic, changes
from large_topics import STATE

from barnabas_broker.metadata.controller.deletions import Planned, Transitions
from barnabas_broker.metadata.documents import (
    AnyDocument,
    ImageChange,
    broker_key,
    documents_of,
    encode,
    laid_out,
    tombstone_key,
    topic_key,
)
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    BrokerRegistration,
    TombstoneDocument,
    TopicDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    Changes,
    Document,
    HistoryCompacted,
    Listing,
    StoreUnavailable,
    Write,
)


class WatchedLate:
    """A store that accepts a write, then loses the document and its history before the watch reports it."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    async def write(self, writes: Sequence[Write]) -> list[int]:
        self._image.apply_listing(Listing(50, []))
        return [49 for _ in writes]


async def test_a_change_lost_by_the_store_is_still_known_to_its_writer() -> None:
    image = MetadataImage()
    before = a_topic("a", 1)
    image.apply_changes(changes((topic_key("a"), before)))
    configured = msgspec.structs.replace(before, configs={"retention.ms": "5"}, configs_epoch=1)
    transitions = Transitions(WatchedLate(image), image)  # type: ignore[arg-type]
    await transitions.carry_out(["a"], lambda _: {"a": Planned(topic_key("a"), configured)})
    assert image.topics["a"] == configured
    assert image.lost == {topic_key("a"): configured}


async def test_waiting_for_a_revision_ends_when_an_older_store_is_restored() -> None:
    image = MetadataImage()
    image.apply_listing(Listing(50, []))
    waiting = asyncio.create_task(image.reached(51))
    await asyncio.sleep(0)
    image.apply_listing(Listing(20, []))
    await waiting


async def test_waiters_resume_when_their_revision_is_reached() -> None:
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
    """A store with scripted listings and watches; the feed does not use the rest of a store."""

    def __init__(self, listings: Sequence[Listing], watches: Sequence[Sequence[Changes | Exception]]) -> None:
        self.listings = list(listings)
        self.watches = list(watches)
        self.watched_from: list[int] = []

    async def listing(self) -> Listing:
        return self.listings.pop(0)

    async def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        self.watched_from.append(from_revision)
        for step in self.watches.pop(0) if self.watches else ():
            if isinstance(step, Exception):
                raise step
            yield step


async def test_the_feed_continues_after_an_outage_and_lists_again_after_compacted_history() -> None:
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


async def test_the_feed_accepts_a_restored_store_that_reuses_a_version() -> None:
    before, now = (BrokerRegistration(0, UUID(int=epoch), (), broker_epoch=epoch) for epoch in (40, 20))
    store = ScriptedStore(
        [
            Listing(50, [Document(broker_key(0), encode(before), 43)]),
            Listing(45, [Document(broker_key(0), encode(now), 43)]),
        ],
        [[HistoryCompacted("it was put back")], []],
    )
    image = MetadataImage()
    await image_feed.load(image, store)  # type: ignore[arg-type]
    await image_feed.ImageFeed(image, store, asyncio.sleep).follow()  # type: ignore[arg-type]
    assert image.brokers == {0: now}


def parts(topic: TopicDocument, epoch: int) -> list[tuple[str, AnyDocument]]:
    """Return the documents of a topic; all its leaders were elected in this epoch."""
    led = msgspec.structs.replace(STATE, leader_epoch=epoch, partition_epoch=epoch)
    changed = msgspec.structs.replace(topic, partitions=(led,) * len(topic.partitions))
    return list(documents_of(changed, lambda _: None).items())


@pytest.mark.parametrize("is_listed", [False, True])
async def test_leader_changes_of_a_large_topic_are_applied_over_several_turns(is_listed: bool) -> None:
    topic = laid_out(TopicDocument("t", UUID(int=5), (STATE,) * 5_000), splits=True)
    before, after = parts(topic, 0), parts(topic, 1)
    first = Listing(60, [Document(key, encode(document), n) for n, (key, document) in enumerate(before, 1)])
    listing = Listing(200, [Document(key, encode(document), 100 + n) for n, (key, document) in enumerate(after)])
    told = HistoryCompacted("too long") if is_listed else changes(*after, begin=61)
    image, turns, all_by = MetadataImage(), [0], list[int]()
    await image_feed.load(image, ScriptedStore([first], []))  # type: ignore[arg-type]

    def changed() -> int:
        return sum(state.leader_epoch for state in image.topics["t"].partitions)

    async def beside() -> None:
        while True:
            turns.append(changed())
            await asyncio.sleep(0)

    async def waits() -> None:
        await image.reached(61)
        all_by.append(changed())

    others = asyncio.gather(beside(), waits())
    await image_feed.ImageFeed(image, ScriptedStore([listing], [[told]]), asyncio.sleep).follow()  # type: ignore[arg-type]
    await asyncio.sleep(0)
    others.cancel()
    assert max(now - before for before, now in pairwise([*turns, changed()])) <= 1_000
    assert all_by == [5_000], "a waiter sees all documents of a write together"


def test_a_topic_with_a_tombstone_is_deleted_although_its_document_still_exists() -> None:
    image, topic, again = MetadataImage(), a_topic("a", 1), a_topic("a", 2)
    image.apply_changes(changes((topic_key("a"), topic)))
    heard: list[ImageChange] = []
    image.subscribe(heard.append)
    tombstone = TombstoneDocument("a", topic.topic_id, 5)
    image.apply_changes(changes((tombstone_key(topic.topic_id), tombstone), begin=2))
    assert (image.topics, image.topic_name(topic.topic_id), image.deleting) == ({}, None, {"a": topic})
    assert heard[0].deleted == (topic,)
    image.apply_changes(changes((topic_key("a"), topic), begin=3))  # A write that did not know of the tombstone.
    assert (image.topics, image.deleting, len(heard)) == ({}, {"a": topic}, 1)
    image.apply_changes(changes((topic_key("a"), again), begin=4))
    assert (image.topics, image.deleting) == ({"a": again}, {})
    assert heard[1].created == (again,)


async def test_the_feed_pauses_between_listings_if_history_is_compacted_repeatedly() -> None:
    gone = HistoryCompacted("too long")
    told = changes((topic_key("a"), a_topic("a", 1)), begin=10)
    store = ScriptedStore([Listing(n, []) for n in range(1, 6)], [[gone], [gone], [gone], [told, gone], []])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    image = MetadataImage()
    await image_feed.load(image, store)  # type: ignore[arg-type]
    await image_feed.ImageFeed(image, store, sleep).follow()  # type: ignore[arg-type]
    assert slept == [image_feed.RETRY_S] * 2, "the first listing is immediate, also the first one after a change"
    assert store.listings == []
