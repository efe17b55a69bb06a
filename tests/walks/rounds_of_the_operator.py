"""Walks of the operator's rounds over an API server and brokers in memory; of several the shortest counts."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from harness.maintenance_world import maintenance_world
from harness.worker_world import resource, topic, worker_world
from walks.profiled import Walk, profiled, shorter

SCRAM: Final = {"type": "scram-sha-512"}


async def _topic() -> Walk:
    """A Cluster with a Topic is created, and a second round finds nothing to do."""
    async with worker_world() as here:
        here.api.put(resource("Cluster", "one"))
        here.api.put(topic("flights"))
        with profiled() as walk:
            assert await here.round()
            assert await here.round()
        assert here.said("Topic", "flights")[0] == "True"
        return walk


async def _user() -> Walk:
    """A User gets its Secret and its account, and is deleted."""
    async with worker_world() as here:
        here.api.put(resource("Cluster", "one"))
        here.api.put(resource("User", "alice", authentication=SCRAM, quotas={"producerByteRate": 5}))
        with profiled() as walk:
            assert await here.round()
            assert here.brokers.accounts["alice"].mechanisms
            body = here.api.found("User", "alice") or {}
            here.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
            assert await here.round()
        assert here.api.found("User", "alice") is None
        return walk


async def _maintenance_job() -> Walk:
    """A run starts, reports its progress and ends."""
    async with maintenance_world() as runs:
        runs.apply("a", executors=2)
        with profiled() as walk:
            assert await runs.poll()
            runs.driver_runs("a", phase="reading", records={"done": 43, "total": 100})
            runs.clock.pass_time(10.0)
            await runs.poll()
            runs.driver_ends("a", 0, message="archived 100 records", result={"records": 100})
            assert await runs.poll()
        assert runs.said("a")[0] == "Succeeded"
        return walk


ROUNDS: Final[dict[str, Callable[[], Awaitable[Walk]]]] = {
    "two rounds with a Topic": _topic,
    "a User, created and deleted": _user,
    "a MaintenanceJob from start to end": _maintenance_job,
}


ROUNDS_OF_EACH: Final = 3


async def _shortest(walk: Callable[[], Awaitable[Walk]]) -> Walk:
    shortest = await walk()
    for _ in range(ROUNDS_OF_EACH - 1):
        shortest = shorter(shortest, await walk())
    return shortest


async def _walks() -> dict[str, Walk]:
    return {name: await _shortest(walk) for name, walk in ROUNDS.items()}


def walks_of_rounds() -> dict[str, Walk]:
    """Return the walk of each round by its name."""
    return asyncio.run(_walks())
