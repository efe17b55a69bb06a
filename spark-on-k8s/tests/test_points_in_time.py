"""Restores to a point in time, with the offsets that groups had committed then."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer
from jobs_world import World
from pyspark.sql import SparkSession
from test_restoring import restored

from barnabas_jobs.kafka.groups import Groups
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.planning.errors import Refused
from harness.deadline import wait_for


def commit(world: World, group: str, offsets: dict[int, int]) -> None:
    assert Groups(world.bootstrap).commit(group, world.topic, offsets)


def committed(world: World, topic: str, group: str) -> dict[int, int]:
    return Groups(world.bootstrap).committed(topic, range(3), [group])[group]


def last_commit(spark: SparkSession, world: World) -> datetime:
    """Return the time of the archive's last commit."""
    head = world.archived_topic(spark).head
    assert head is not None
    return datetime.fromtimestamp(head.committed_at_ms / 1000, UTC)


@contextmanager
def member(world: World, group: str, topic: str) -> Iterator[Consumer]:
    """A member of the group that commits nothing."""
    settings = {**world.client.settings, "group.id": group, "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        wait_for(lambda: consumer.poll(0.1) or consumer.assignment())
        yield consumer


def outcomes(found: Any) -> dict[str, tuple[dict[int, int], str]]:
    return {each.group: (each.offsets, each.outcome) for each in found.groups}


def test_a_topic_and_its_groups_go_back_to_a_point_in_time(spark: SparkSession, world: World) -> None:
    """The topic had lost its first records before it was archived, so offsets differ in the restored one."""
    into, reader, slow = f"{world.topic}-into", f"{world.topic}-reader", f"{world.topic}-slow"
    world.make()
    world.write(30)
    world.delete_before({0: 4, 1: 0, 2: 10})
    commit(world, reader, {0: 7, 1: 3, 2: 10})
    commit(world, slow, {0: 2})
    world.archive(spark)
    until = last_commit(spark, world)
    then = world.read()
    commit(world, reader, {0: 10, 1: 10, 2: 10})
    commit(world, f"{world.topic}-later", {1: 1})
    world.write(30)
    world.archive(spark)
    back = {"into": into, "create": True, "until": until}
    expected = {reader: {0: 3, 1: 3, 2: 0}, slow: {0: 0}}
    planned = restored(spark, world, **back, dry_run=True)
    assert outcomes(planned) == {group: (offsets, "planned") for group, offsets in expected.items()}
    assert not Cluster(world.bootstrap).has(into)
    result = restored(spark, world, **back)
    assert result.fine
    assert outcomes(result) == {group: (offsets, "committed") for group, offsets in expected.items()}
    assert [record[2:] for record in world.read(into)] == [record[2:] for record in then]
    assert {group: committed(world, into, group) for group in expected} == expected


def test_the_offsets_of_a_group_with_members_are_committed_by_a_later_run(spark: SparkSession, world: World) -> None:
    """An offset that a group has committed by itself since stays."""
    into, busy, ahead = f"{world.topic}-into", f"{world.topic}-busy", f"{world.topic}-ahead"
    world.make()
    world.make(topic=into)
    world.write(30)
    commit(world, busy, {0: 5, 1: 6})
    commit(world, ahead, {2: 3})
    world.archive(spark)
    back = {"into": into, "until": last_commit(spark, world)}
    assert Groups(world.bootstrap).commit(ahead, into, {2: 8})
    there = {ahead: ({2: 3}, "there already")}
    with member(world, busy, into):
        result = restored(spark, world, **back)
        assert outcomes(result) == {busy: ({0: 5, 1: 6}, "has members"), **there}
        assert not result.fine
        assert result.summary.startswith("the offsets of 1 groups were not committed, because the groups have members")
        assert committed(world, into, busy) == {}
    assert Groups(world.bootstrap).commit(busy, into, {1: 9})
    assert outcomes(restored(spark, world, **back)) == {busy: ({0: 5, 1: 6}, "committed"), **there}
    assert (committed(world, into, busy), committed(world, into, ahead)) == ({0: 5, 1: 9}, {2: 8})


def test_a_time_before_the_first_commit_is_refused(spark: SparkSession, world: World) -> None:
    world.make(1)
    world.write(3, 1)
    world.archive(spark)
    with pytest.raises(Refused, match=r"until=.* the first commit of the archive .* is of 20"):
        restored(spark, world, into="other", create=True, until=datetime(2013, 1, 1, tzinfo=UTC))


def test_a_broker_lets_nobody_commit_for_a_group_with_members(world: World) -> None:
    """A member may join between the look at the groups and the commit."""
    world.make()
    with member(world, f"{world.topic}-busy", world.topic):
        assert Groups(world.bootstrap).with_members() >= {f"{world.topic}-busy"}
        assert not Groups(world.bootstrap).commit(f"{world.topic}-busy", world.topic, {0: 1})
