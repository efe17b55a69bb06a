"""A leader's answers to the successive fetch requests of one follower."""

from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from fetch_world import TOPIC_ID, World
from msgspec import structs

from barnabas_broker.replication.follower_sessions import FollowerAnswer
from barnabas_broker.wire.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, at_once


def fetch(world: World, request: FetchRequest) -> list[FollowerAnswer]:
    answers: list[FollowerAnswer] = []
    world.brokers[1].sessions.fetch(request, answers.append)
    return answers


def request(
    follower_id: int, session_id: int = 0, session_epoch: int = 0, *, broker_epoch: int = 1, **position: int
) -> FetchRequest:
    asked = {"current_leader_epoch": 0, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": 0} | position
    partition = FetchPartition(partition=0, max_bytes=1 << 20, **asked)
    topic = FetchTopic(None, TOPIC_ID.bytes, [partition])
    return FetchRequest(follower_id, broker_epoch, 500, 1, 1 << 20, 0, session_id, session_epoch, [topic], [])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (request(4), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (request(2, session_id=99, session_epoch=1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(3, session_id=1, session_epoch=1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (request(2, session_id=1, session_epoch=2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
def test_a_fetch_of_an_unknown_broker_or_session_is_refused_as_a_whole(
    tmp_path: Path, asked: FetchRequest, error: ErrorCode
) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    assert fetch(world, request(2))[0].session_id == 1
    assert fetch(world, asked) == [FollowerAnswer(error, 0, [])]


@pytest.mark.parametrize("refused", [{"broker_epoch": 2}, {"session_epoch": 3}, {"session_id": 99}])
def test_a_waiting_fetch_is_answered_before_a_later_one_is_refused(tmp_path: Path, refused: dict[str, int]) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    session_id = fetch(world, request(2))[0].session_id
    answers: list[FollowerAnswer] = []
    for later in ({}, refused):
        asked = request(2, **{"session_id": session_id, "session_epoch": 1 + bool(later), **later})
        world.brokers[1].sessions.fetch(asked, answers.append)
    assert [answer.session_id for answer in answers] == [session_id, 0]


@pytest.mark.parametrize("epoch", [-1, 0, 2])
def test_only_fetches_of_the_registered_broker_epoch_move_the_high_watermark(tmp_path: Path, epoch: int) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    world.append(0)
    partition = world.brokers[1].partitions[0]
    session_id = fetch(world, request(2))[0].session_id
    for ids in ((0, 0), (session_id, 1)):
        claimed = request(2, *ids, broker_epoch=epoch, fetch_offset=1)
        assert fetch(world, claimed) == [FollowerAnswer(ErrorCode.STALE_BROKER_EPOCH, 0, [])]
    assert partition.log.high_watermark == 0
    fetch(world, request(2, fetch_offset=1))
    assert partition.log.high_watermark == 1


@pytest.mark.parametrize(
    ("position", "error"),
    [
        ({"current_leader_epoch": 3}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"fetch_offset": 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_a_partition_that_cannot_be_fetched_gets_its_error(
    tmp_path: Path, position: dict[str, int], error: ErrorCode
) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    ((_, [result]),) = fetch(world, request(2, **position))[0].topics
    assert result.error == error


def test_a_broker_that_is_no_replica_is_refused_and_never_proposed_for_the_isr(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    ((_, [result]),) = fetch(world, request(3))[0].topics
    assert result.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.proposals == []


def test_an_unknown_topic_is_refused_and_a_new_session_replaces_the_old_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    ((_, [result]),) = fetch(world, request(2))[0].topics
    assert (result.error, TOPIC_ID) == (ErrorCode.UNKNOWN_TOPIC_ID, UUID(int=7))
    world.lead(0, 1, to=(1,))
    first = fetch(world, request(2))
    waiting = fetch(world, request(2, session_id=first[0].session_id, session_epoch=1))
    assert fetch(world, request(2))[0].session_id == first[0].session_id + 1
    world.append(0)
    world.timers.pass_time(1)
    assert waiting == [FollowerAnswer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])]
    assert world.brokers[1].sessions.partition_counts == {2: 1}


def many_asked(world: World, session_id: int = 0, session_epoch: int = 0) -> FetchRequest:
    """Return a request for partitions with records, partitions without records, and one that does not exist."""
    wanted = [FetchPartition(index, 0, 0, -1, 0, 1 << 20) for index in range(len(world.brokers[1].partitions) + 1)]
    topics = [FetchTopic(None, TOPIC_ID.bytes, wanted)]
    forgotten = [ForgottenTopic(None, TOPIC_ID.bytes, (1, 2))]
    return FetchRequest(2, 1, 500, 1, 1 << 20, 0, session_id, session_epoch, topics, forgotten)


def large_world(path: Path, partitions: int = 40) -> World:
    world = World(path)
    for index in range(partitions):
        world.lead(index, 1, to=(1,))
        for _ in range(index % 3):
            world.append(index)
    return world


def contents(answer: FollowerAnswer) -> object:
    """Return an answer without the file objects."""
    return answer.error, [
        (topic, [structs.replace(each, records=each.records and each.records[1:]) for each in results])
        for topic, results in answer.topics
    ]


def test_a_session_that_begins_in_steps_has_the_answer_of_one_turn(tmp_path: Path) -> None:
    worlds = [large_world(tmp_path / name) for name in ("once", "steps")]
    at_first = fetch(worlds[0], many_asked(worlds[0]))[0]
    in_turns = at_once(worlds[1].brokers[1].sessions.answer_in_steps(many_asked(worlds[1])))
    assert contents(at_first) == contents(in_turns)
    for world, answer in zip(worlds, (at_first, in_turns), strict=True):
        asked = structs.replace(many_asked(world, answer.session_id, 1), max_wait_ms=0)
        assert contents(fetch(world, asked)[0]) == contents(at_first)
        assert world.brokers[1].sessions.partition_counts == {2: 40}


def test_a_step_of_a_session_takes_few_partitions(tmp_path: Path) -> None:
    world = large_world(tmp_path)
    steps = world.brokers[1].sessions.answer_in_steps(many_asked(world))
    counts = [world.brokers[1].sessions.partition_counts.get(2, 0) for _ in steps]
    assert max(after - before for before, after in pairwise([0, *counts])) <= STEP_ELEMENTS
    assert len(counts) >= 2 * 40 // STEP_ELEMENTS


@pytest.mark.parametrize("steps", [1, 3, 6, 9])
def test_a_session_that_is_replaced_between_two_steps_takes_no_more_partitions(tmp_path: Path, steps: int) -> None:
    world = large_world(tmp_path)
    sessions = world.brokers[1].sessions
    answering = sessions.answer_in_steps(many_asked(world))
    for _ in range(steps):
        next(answering)
    fetch(world, request(2))
    assert at_once(answering) == FollowerAnswer(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
    assert sessions.partition_counts == {2: 1}


def test_a_follower_that_registers_again_between_two_steps_moves_no_high_watermark(tmp_path: Path) -> None:
    world = large_world(tmp_path)
    asked = many_asked(world)
    at_end = [structs.replace(each, fetch_offset=each.partition % 3) for each in asked.topics[0].partitions]
    asked = structs.replace(asked, topics=[FetchTopic(None, TOPIC_ID.bytes, at_end)], forgotten=[])
    answering = world.brokers[1].sessions.answer_in_steps(asked)
    next(answering)
    world.broker_epochs[2] += 1
    assert at_once(answering).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    marks = [world.brokers[1].partitions[index].log.high_watermark for index in range(40)]
    assert any(marks[:STEP_ELEMENTS])
    assert not any(marks[STEP_ELEMENTS:])


def test_a_request_that_waits_beside_steps_of_its_session_is_answered_before_them(tmp_path: Path) -> None:
    world = large_world(tmp_path)
    sessions, waiting = world.brokers[1].sessions, list[FollowerAnswer]()
    answering = sessions.answer_in_steps(many_asked(world))
    next(answering)
    beside = structs.replace(request(2, session_id=1, session_epoch=1), topics=[], min_bytes=1 << 30)
    sessions.fetch(beside, waiting.append)
    assert not waiting
    answer = at_once(answering)
    assert (len(waiting), waiting[0].error, answer.error) == (1, 0, 0)
    both = [each for of in (waiting[0], answer) for _, results in of.topics for each in results if each.records]
    assert len({each.partition for each in both}) == len(both) == sum(1 for index in range(40) if index % 3)
