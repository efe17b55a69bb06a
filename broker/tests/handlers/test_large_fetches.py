"""A large fetch takes turns from its parsing to its freeing, and reads only changed partitions again."""

import asyncio
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from asked_in_turns import MOST, CallsOfTurns
from fetched_broker import BATCH_BYTES, MANY_PARTITIONS, TOPIC, FetchedBroker

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.handler_environment import ClientQuotas
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
from barnabas_broker.replication.follower_sessions import FollowerAnswer
from barnabas_broker.security.authorizer import Authorizer
from barnabas_broker.server.dispatch import throttled
from barnabas_broker.wire.fetch import FetchRequest
from barnabas_broker.wire.framing import FETCH, FileSlice
from barnabas_broker.wire.replica_fetch import parse_replica_fetch_response
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps
from harness.manual_clock import ManualClock
from harness.soak import size

READS_MAX = 50
"""The most partitions that one turn may read: the clock has time for five steps of eight."""
REQUESTS = {
    "one topic": {},
    "topics": {"topics": MANY_PARTITIONS, "partitions": 1},
    "topics without partitions": {"topics": MANY_PARTITIONS, "partitions": 0},
    "forgotten topics": {"topics": 0, "forgotten": MANY_PARTITIONS},
}


@pytest.mark.parametrize("counts", REQUESTS.values(), ids=REQUESTS.keys())
@pytest.mark.parametrize("requests", [1, 3])
async def test_no_turn_has_a_large_share_of_large_fetches(counts: Any, requests: int) -> None:
    world, calls = FetchedBroker(), CallsOfTurns()
    for _ in range(requests):
        with calls.turn():
            world.send(world.request(max_wait_ms=0, **counts))
    while world.answered < requests:
        with calls.turn():
            await asyncio.sleep(0)
    assert max(calls.of_turns) < MOST * sum(calls.of_turns) / requests
    assert world.is_read


@pytest.mark.parametrize("counts", REQUESTS.values(), ids=REQUESTS.keys())
async def test_a_large_fetch_is_freed_in_turns(counts: Any) -> None:
    world = FetchedBroker()
    world.send(world.request(max_wait_ms=0, **counts))
    await world.turns(lambda: world.response is not None)
    assert world.kept >= MANY_PARTITIONS
    await world.turns(lambda: not world.kept)
    assert world.most_freed <= READS_MAX
    assert world.most_freed * 20 < MANY_PARTITIONS


async def test_a_fetch_reads_many_partitions_in_one_slice_per_turn() -> None:
    world = FetchedBroker()
    world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.response is not None)
    assert world.reads == MANY_PARTITIONS
    assert world.most_in_a_turn <= READS_MAX


async def test_many_large_fetches_together_read_one_slice_per_turn() -> None:
    world = FetchedBroker()
    for _ in range(5):
        world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.reads == 5 * MANY_PARTITIONS)
    assert world.most_in_a_turn <= READS_MAX


async def test_an_append_makes_a_waiting_fetch_read_only_one_partition_again() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=3 * BATCH_BYTES)
    await world.turns(lambda: world.reads == MANY_PARTITIONS and bool(world.partitions[0].waiters.waiting))
    for number, partition in enumerate(world.partitions[:3]):
        assert world.response is None
        partition.append()
        await world.turns(partial(world.has_read, MANY_PARTITIONS + number + 1))
    await world.turns(lambda: world.response is not None)
    assert world.slices() == 3
    assert world.reads == MANY_PARTITIONS + 3
    assert not any(partition.waiters.waiting for partition in world.partitions)


async def test_a_fetch_returns_records_that_are_appended_between_two_slices() -> None:
    world = FetchedBroker()
    world.fetch()
    await world.turns(lambda: world.partitions[0].reads == 1)
    assert world.reads < MANY_PARTITIONS
    world.partitions[0].append()
    await world.turns(lambda: world.response is not None)
    assert world.slices() == 1


async def test_a_fetch_ends_its_wait_if_a_partition_moves_to_another_leader() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=1_000_000)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[5].leader = None
    world.partitions[5].waiters.mark()
    await world.turns(lambda: world.response is not None)


async def test_a_waiting_fetch_counts_a_partition_with_two_appends_once() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=2 * BATCH_BYTES)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[9].append()
    await world.turns(lambda: world.partitions[9].reads == 2)
    assert world.response is None
    world.partitions[9].append()
    await world.turns(lambda: world.response is not None)
    assert world.slices() == 1


async def test_a_waiting_fetch_returns_no_records_if_its_client_loses_the_right() -> None:
    world = FetchedBroker(partitions=1)
    authorizer = Authorizer([], allow_if_none=True, audit=Mock())
    world.handler_environment.authorizer = authorizer
    world.handler_environment.image = SimpleNamespace(topic_name=lambda _: "flights")
    body = world.request()
    world.send(body)
    denial = AclEntry("User:ANONYMOUS", "*", AclOperation.READ, Permission.DENY)
    authorizer.replace({AclPattern(ResourceType.TOPIC, "flights", PatternType.LITERAL): [denial]})
    assert world.response is None
    world.partitions[0].append()
    await world.turns(lambda: world.response is not None)
    assert world.slices() == 0


async def test_a_fetch_checks_rights_to_many_topics_in_slices() -> None:
    world = FetchedBroker(partitions=1)
    world.handler_environment.authorizer = Authorizer([], allow_if_none=False, audit=Mock())
    names = Mock(return_value="flights")
    world.handler_environment.image = SimpleNamespace(topic_name=names)
    body = world.request(topics=MANY_PARTITIONS)
    world.send(body)
    most = 0
    while world.response is None:
        before = names.call_count
        await asyncio.sleep(0)
        most = max(most, names.call_count - before)
    assert names.call_count == MANY_PARTITIONS
    assert most <= READS_MAX
    assert world.reads == 0


@pytest.mark.parametrize("turns", [1, 5, 20, 80])
async def test_a_client_that_disconnects_in_the_middle_gets_no_answer_and_its_fetch_is_freed(turns: int) -> None:
    world = FetchedBroker()
    give_up = world.send(world.request(max_wait_ms=60_000))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert give_up is not None
    world.is_gone = True
    give_up()
    await world.turns(lambda: not world.kept)
    assert world.response is None
    assert not any(partition.waiters.waiting for partition in world.partitions)


async def test_a_large_fetch_that_waits_when_its_client_disconnects_is_freed_in_turns() -> None:
    world = FetchedBroker()
    give_up = world.send(world.request(max_wait_ms=60_000))
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    assert give_up is not None
    give_up()
    assert not any(partition.waiters.waiting for partition in world.partitions)
    await world.turns(lambda: not world.kept)
    assert world.most_freed <= READS_MAX
    assert world.response is None


@pytest.mark.parametrize("cut", [1, 40, 20_000])
async def test_a_large_fetch_that_lacks_bytes_closes_its_connection(cut: int) -> None:
    world = FetchedBroker()
    body = world.request()[:-cut]
    world.send(body)
    await world.turns(lambda: world.closed is not None)
    assert world.closed is not None
    assert world.closed.startswith("Fetch: ")
    assert world.response is None


@pytest.mark.parametrize("seed", range(size(5, 500)))
async def test_a_fetch_in_turns_gets_the_response_of_one_turn(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    world = FetchedBroker(chance.randint(1, 60))
    for partition in world.partitions:
        for _ in range(chance.choice([0, 0, 1, 2])):
            partition.append()
        partition.leader = chance.choice([object(), object(), None])
    names = {UUID(int=TOPIC.int + each): chance.choice(["flights", "secret", None]) for each in range(50)}
    world.handler_environment.image.topic_name = names.get
    denial = AclEntry("User:ANONYMOUS", "*", AclOperation.READ, Permission.DENY)
    authorizer = Authorizer([], allow_if_none=True, audit=Mock())
    authorizer.replace({AclPattern(ResourceType.TOPIC, "secret", PatternType.LITERAL): [denial]})
    world.handler_environment.authorizer = authorizer
    body = world.request(max_wait_ms=0, topics=chance.randint(0, 50), partitions=chance.randint(0, 60), forgotten=3)
    answers: list[Any] = []
    for large_bytes in (0, len(body)):
        monkeypatch.setattr(fetch, "LARGE_FETCH_BYTES", large_bytes)
        world.response = None
        world.send(body)
        await world.turns(lambda: world.response is not None)
        answers.append(world.response)
    assert answers[0] == answers[1]


async def test_a_large_fetch_takes_turns_and_is_throttled_while_quotas_are_set() -> None:
    world, muted = FetchedBroker(), list[float]()
    limit = EntityQuotas({"user": None}, {"consumer_byte_rate": 1.0})
    image: Any = SimpleNamespace(document=lambda _: ClientQuotasDocument((limit,)), subscribe=lambda _: None)
    world.handler_environment.quotas = ClientQuotas(image, ManualClock(), None)
    world.answers = SimpleNamespace(mute=muted.append)
    for _ in range(2):
        world.response = None
        world.send(world.request(max_wait_ms=0), throttled(FETCH, fetch.handle))
        assert world.response is None
        await world.turns(lambda: world.response is not None)
        assert world.reads > 0
    assert muted
    assert world.most_in_a_turn <= READS_MAX


def in_steps(request: FetchRequest) -> InSteps[FollowerAnswer]:
    """Answer as the session of a follower, in which each partition has an error."""
    for _ in range(20):
        yield 0
    topics = [(topic, [fetch.unauthorized(each.partition) for each in topic.partitions]) for topic in request.topics]
    return FollowerAnswer(ErrorCode.NONE, 9, topics)


@pytest.mark.parametrize(
    ("listener", "may_follow", "error", "results"),
    [
        ("REPLICATION", True, ErrorCode.NONE, MANY_PARTITIONS),
        ("REPLICATION", False, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0),
        ("PLAINTEXT", True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0),
    ],
)
async def test_a_large_fetch_of_a_follower_is_answered_and_freed_in_turns(
    listener: str, may_follow: bool, error: ErrorCode, results: int
) -> None:
    world = FetchedBroker()
    world.client = Client(listener, "127.0.0.1:5")
    world.handler_environment.followers = SimpleNamespace(answer_in_steps=in_steps)
    world.handler_environment.authorizer = Authorizer([], allow_if_none=may_follow, audit=Mock())
    world.send(world.request(replica_id=2))
    await world.turns(lambda: world.response is not None)
    frame = b"".join(part for part in world.response or () if not isinstance(part, FileSlice))
    answer = parse_replica_fetch_response(memoryview(frame)[4:])
    assert (answer.error, sum(len(found) for _, found in answer.topics)) == (error, results)
    await world.turns(lambda: not world.kept)
    assert world.most_freed <= READS_MAX
