"""A fetch reads many partitions in slices, and reads only changed partitions again."""

import asyncio
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

from fetched_broker import BATCH_BYTES, MANY_PARTITIONS, VERSION, FetchedBroker

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.fetch import AuthorizedFetch
from barnabas_broker.security.acls.authorizer import Authorizer
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.loop_turns import FETCHED_PARTITIONS


async def test_a_fetch_reads_many_partitions_in_one_slice_per_turn() -> None:
    world = FetchedBroker()
    world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.answer is not None)
    assert world.reads == MANY_PARTITIONS
    assert world.most_in_a_turn <= FETCHED_PARTITIONS


async def test_many_large_fetches_together_read_one_slice_per_turn() -> None:
    world = FetchedBroker()
    for _ in range(5):
        world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.reads == 5 * MANY_PARTITIONS)
    assert world.most_in_a_turn <= FETCHED_PARTITIONS


async def test_an_append_makes_a_waiting_fetch_read_only_one_partition_again() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=3 * BATCH_BYTES)
    await world.turns(lambda: world.reads == MANY_PARTITIONS and bool(world.partitions[0].waiters.waiting))
    for number, partition in enumerate(world.partitions[:3]):
        assert world.answer is None
        partition.append()
        await world.turns(partial(world.has_read, MANY_PARTITIONS + number + 1))
    assert world.slices() == 3
    assert world.reads == MANY_PARTITIONS + 3
    assert not any(partition.waiters.waiting for partition in world.partitions)


async def test_a_fetch_returns_records_that_are_appended_between_two_slices() -> None:
    world = FetchedBroker()
    world.fetch()
    await world.turns(lambda: world.partitions[0].reads == 1)
    assert world.reads < MANY_PARTITIONS
    world.partitions[0].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


async def test_a_fetch_ends_its_wait_if_a_partition_moves_to_another_leader() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=1_000_000)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[5].leader = None
    world.partitions[5].waiters.mark()
    await world.turns(lambda: world.answer is not None)


async def test_a_waiting_fetch_counts_a_partition_with_two_appends_once() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=2 * BATCH_BYTES)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[9].append()
    await world.turns(lambda: world.partitions[9].reads == 2)
    assert world.answer is None
    world.partitions[9].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


async def test_a_waiting_fetch_returns_no_records_if_its_client_loses_the_right() -> None:
    world = FetchedBroker(partitions=1)
    authorizer = Authorizer([], allow_if_none=True, audit=Mock())
    world.handler_environment.authorizer = authorizer
    world.handler_environment.image = SimpleNamespace(topic_name=lambda _: "flights")
    body = world.request()
    fetch.handle(world.handler_environment, world, VERSION, 1, memoryview(body), 0, len(body), AuthorizedFetch)
    denial = AclEntry("User:ANONYMOUS", "*", AclOperation.READ, Permission.DENY)
    authorizer.replace({AclPattern(ResourceType.TOPIC, "flights", PatternType.LITERAL): [denial]})
    assert world.answer is None
    world.partitions[0].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 0


async def test_a_fetch_checks_rights_to_many_topics_in_slices() -> None:
    world = FetchedBroker(partitions=1)
    world.handler_environment.authorizer = Authorizer([], allow_if_none=False, audit=Mock())
    names = Mock(return_value="flights")
    world.handler_environment.image = SimpleNamespace(topic_name=names)
    body = world.request(topics=MANY_PARTITIONS)
    fetch.handle(world.handler_environment, world, VERSION, 1, memoryview(body), 0, len(body), AuthorizedFetch)
    most = 0
    while world.answer is None:
        before = names.call_count
        await asyncio.sleep(0)
        most = max(most, names.call_count - before)
    assert names.call_count == MANY_PARTITIONS
    assert most <= FETCHED_PARTITIONS
    assert world.reads == 0
