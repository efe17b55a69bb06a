"""The coordinator follows its topic: which partitions it leads, and which topics were deleted."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas_broker.app.coordinators import CREATED_MAX, ImageTopics, follow_topic, forget_deleted_topics
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.model import PartitionState, TombstoneDocument, TopicDocument
from barnabas_core.topic_partition import CONSUMER_OFFSETS


class Coordinator:
    """A coordinator that records each of its calls."""

    partition_count = 0

    def __init__(self) -> None:
        self.heard: list[object] = []

    def elect(self, partition: int, leader_epoch: int) -> None:
        self.heard.append(("elected", partition, leader_epoch))

    def resign_all(self) -> None:
        self.heard.append("resigned")

    def on_topics_deleted(self, topics: dict[UUID, TombstoneDocument]) -> None:
        self.heard.append({topic_id: tombstone.name for topic_id, tombstone in topics.items()})


def topic(name: str, number: int, leader_epoch: int = 0) -> TopicDocument:
    return TopicDocument(name, UUID(int=number), (PartitionState((1,), 1, leader_epoch, (1,)),))


def heard_of(before: TopicDocument, change: ImageChange, *, is_buried: bool = True) -> list[object]:
    """Return the calls that the coordinator gets for the change, without those for the state before."""
    listeners: list[Callable[[ImageChange], None]] = []
    coordinator: Any = Coordinator()
    stone = TombstoneDocument(before.name, before.topic_id, 0)
    tombstones = {before.topic_id: stone} if is_buried else {}
    image: Any = SimpleNamespace(topics={before.name: before}, tombstones=tombstones, subscribe=listeners.append)
    follow_topic(CONSUMER_OFFSETS, coordinator, 1, image)
    forget_deleted_topics(coordinator, image)
    coordinator.heard.clear()
    image.topics.update({document.name: document for document in change.created})
    for listener in listeners:
        listener(change)
    return list(coordinator.heard)


def test_a_recreated_offsets_topic_is_loaded_although_its_leader_epoch_is_lower() -> None:
    old, new = topic(CONSUMER_OFFSETS, 1, leader_epoch=5), topic(CONSUMER_OFFSETS, 2)
    assert heard_of(old, ImageChange(created=(new,), deleted=(old,))) == [
        "resigned",
        ("elected", 0, 0),
        {UUID(int=1): CONSUMER_OFFSETS},
    ]


def test_the_coordinator_is_notified_of_the_old_id_of_a_recreated_topic() -> None:
    old, new = topic("weather", 1), topic("weather", 2)
    assert heard_of(old, ImageChange(created=(new,), deleted=(old,))) == [{UUID(int=1): "weather"}]


def test_the_coordinator_keeps_the_offsets_of_a_topic_that_an_older_backup_replaces_by_an_earlier_one() -> None:
    earlier, lost = topic("weather", 1), topic("weather", 2)
    assert heard_of(lost, ImageChange(created=(earlier,), deleted=(lost,)), is_buried=False) == []


def image_topics(*names: str) -> tuple[ImageTopics, Callable[[ImageChange], None]]:
    listeners: list[Callable[[ImageChange], None]] = []
    topics = {name: topic(name, number) for number, name in enumerate(names, start=1)}
    image: Any = SimpleNamespace(topics=topics, subscribe=listeners.append)
    return ImageTopics(image), listeners[0]


def test_groups_learn_which_topics_were_created_since_a_version() -> None:
    topics, listener = image_topics("weather")
    begin = topics.version()
    listener(ImageChange(created=(topic("flights", 2),)))
    middle = topics.version()
    listener(ImageChange(created=(topic("planes", 3),), deleted=(topic("weather", 1),)))
    listener(ImageChange(created=(topic("weather", 4),), deleted=(topic("flights", 2),)))
    assert set(topics.created_since(begin) or ()) == {"flights", "planes", "weather"}
    assert set(topics.created_since(middle) or ()) == {"planes", "weather"}
    assert topics.created_since(topics.version()) == []


def test_groups_learn_that_older_new_topics_are_no_longer_known() -> None:
    topics, listener = image_topics()
    begin = topics.version()
    listener(ImageChange(created=(topic("first", 1),)))
    after_first = topics.version()
    listener(ImageChange(created=tuple(topic(f"t{number}", number) for number in range(2, CREATED_MAX + 2))))
    assert topics.created_since(begin) is None
    assert len(topics.created_since(after_first) or ()) == CREATED_MAX
