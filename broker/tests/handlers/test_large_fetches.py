"""A fetch of many partitions is read in slices, and only what changes is read again."""

import asyncio
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

from fetched_broker import BATCH_BYTES, MANY_PARTITIONS, VERSION, FetchedBroker

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.authorized_fetch import AuthorizedFetch
from barnabas_broker.security.acls.authorizer import Authorizer
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.fair_turns import FETCHED_PARTITIONS


async def test_many_partitions_are_read_a_slice_a_turn() -> None:
    world = FetchedBroker()
    world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.answer is not None)
    assert world.reads == MANY_PARTITIONS
    assert world.most_in_a_turn <= FETCHED_PARTITIONS


async def test_an_append_costs_a_waiting_fetch_one_look_however_many_partitions_it_has() -> None:
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


async def test_records_that_come_between_two_slices_are_not_missed() -> None:
    world = FetchedBroker()
    world.fetch()
    await asyncio.sleep(0)
    assert world.partitions[0].reads == 1
    world.partitions[0].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


async def test_a_partition_that_moves_to_another_leader_ends_the_wait() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=1_000_000)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[5].leader = None
    world.partitions[5].waiters.mark()
    await world.turns(lambda: world.answer is not None)


async def test_a_partition_that_grows_twice_counts_once() -> None:
    world = FetchedBroker()
    world.fetch(min_bytes=2 * BATCH_BYTES)
    await world.turns(lambda: bool(world.partitions[-1].waiters.waiting))
    world.partitions[9].append()
    await world.turns(lambda: world.partitions[9].reads == 2)
    assert world.answer is None
    world.partitions[9].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


async def test_a_fetch_that_waits_while_its_client_loses_the_right_gets_no_records() -> None:
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
