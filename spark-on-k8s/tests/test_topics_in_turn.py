"""A report of many topics names those that cannot be read, and reads the others. No Spark runs here."""

from collections.abc import Sequence
from typing import Any

import pytest
from jobs_world import World

from barnabas_jobs.jobs.topics_in_turn import read_in_turn, records_of
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.archived import Bounds, OffsetRange
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.page import Unread
from barnabas_jobs.planning.skew_report import skew_page

LOST = JobFailed("records were deleted from the topic while the job read it")


def offsets(_: Topic, ranges: Sequence[OffsetRange]) -> int:
    return sum(each.offsets for each in ranges)


@pytest.fixture
def names(world: World) -> list[str]:
    """Three topics of one partition with 4 records each."""
    names = [f"{world.topic}-{number}" for number in range(3)]
    for name in names:
        world.make(1, topic=name)
        world.write_values(name, [b"x"] * 4)
    return names


def test_topics_deleted_before_or_during_the_read_are_reported_and_the_others_are_read(
    world: World, names: list[str]
) -> None:
    def read(topic: Topic, ranges: Sequence[OffsetRange]) -> int:
        if topic.name == names[0]:
            world.delete(names[0])
            world.delete(names[1])
            raise LOST
        return offsets(topic, ranges)

    reports, unread = read_in_turn(Cluster(world.bootstrap), names, read)
    assert reports == [4]
    assert unread == [
        Unread(topic=name, why="the topic was deleted while the job ran", is_gone=True) for name in names[:2]
    ]


def test_a_topic_that_loses_its_oldest_records_during_the_read_is_read_again(world: World, names: list[str]) -> None:
    tries: list[int] = []
    world.topic = names[0]

    def read(topic: Topic, ranges: Sequence[OffsetRange]) -> int:
        tries.append(offsets(topic, ranges))
        if len(tries) == 1:
            world.delete_before({0: 3})
            raise LOST
        return tries[-1]

    assert read_in_turn(Cluster(world.bootstrap), names[:1], read) == ([1], [])
    assert tries == [4, 1]


def test_a_topic_that_fails_for_another_reason_is_not_reported_as_deleted(world: World, names: list[str]) -> None:
    tries: list[str] = []

    def read(topic: Topic, ranges: Sequence[OffsetRange]) -> int:
        tries.append(topic.name)
        if topic.name == names[1]:
            raise JobFailed("a task failed")
        return offsets(topic, ranges)

    reports, unread = read_in_turn(Cluster(world.bootstrap), names, read)
    assert (reports, unread) == ([4, 4], [Unread(topic=names[1], why="a task failed", is_gone=False)])
    assert tries == names, "each topic must be read once"


def test_the_job_fails_with_the_first_error_if_no_topic_can_be_read(world: World, names: list[str]) -> None:
    def read(topic: Topic, _: Sequence[OffsetRange]) -> int:
        raise JobFailed(f"{topic.name} is bad")

    with pytest.raises(JobFailed, match=f"^{names[0]} is bad$"):
        read_in_turn(Cluster(world.bootstrap), names, read)


class Brokers:
    """Three topics, the second of them with a partition without a leader; `has` fails after some answers."""

    def __init__(self, answers: int = 100) -> None:
        self.answers = answers

    def topic(self, name: str) -> Topic:
        return Topic(name, "id", [0, 1], (1,) if name == "b" else ())

    def bounds(self, topic: Topic) -> dict[int, Bounds]:
        assert not topic.leaderless, "brokers would not answer this for 30 s"
        return {0: Bounds(0, 2), 1: Bounds(1, 4)}

    def has(self, _: str) -> bool:
        self.answers -= 1
        if self.answers < 0:
            raise JobFailed("no broker answered")
        return True


def test_a_topic_without_a_leader_is_reported_without_waiting() -> None:
    brokers: Any = Brokers()
    reports, unread = read_in_turn(brokers, ["a", "b", "c"], offsets)
    why = "topic=b: the partitions 1 have no leader"
    assert (reports, unread) == ([5, 5], [Unread(topic="b", why=why, is_gone=False)])
    assert records_of(brokers, ["a", "b", "c"]) == 10


def test_an_unreachable_cluster_is_not_reported_as_an_unreadable_topic() -> None:
    brokers: Any = Brokers(answers=0)
    with pytest.raises(JobFailed, match="no broker answered"):
        read_in_turn(brokers, ["a", "b", "c"], offsets)


def test_the_page_names_topics_that_could_not_be_read() -> None:
    page = skew_page("", [], [], [], [], [Unread(topic="b", why="without a leader", is_gone=False)])
    assert "<td>b</td><td>without a leader</td>" in page
    assert "could not be read" not in skew_page("", [], [], [], [])
