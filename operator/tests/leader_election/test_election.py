"""An operator renews its lease, and releases it when it shuts down."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.leader_election import LEASE, OUTAGE_S_MIN, READ_S, RETRY_S, ApiOutages, Election, Leadership
from barnabas_operator.resources.kind import Key
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import ManualLoopClock
from harness.worker_world import refuses


class World:
    """The operator `me`, which holds the lease, and its clock."""

    def __init__(self, api: KubeMemory) -> None:
        self.api, self.clock = api, ManualLoopClock()
        api.put({"kind": LEASE, "metadata": {"name": "operator"}, "spec": {}})
        self.leadership = Leadership(self.clock.monotonic_s)
        self.outages = ApiOutages(self.clock.monotonic_s)
        self.election = Election(
            api, Key("air", "operator"), "me", self.leadership, self.clock, lambda: None, self.outages
        )

    @property
    def holder(self) -> str | None:
        found = self.api.found(LEASE, "operator")
        assert found is not None
        holder: str | None = found["spec"].get("holderIdentity")
        return holder


@asynccontextmanager
async def elected() -> AsyncIterator[World]:
    async with no_server() as connection, asyncio.timeout(PATIENCE_S):
        here = World(KubeMemory(connection))
        running = asyncio.create_task(here.election.run())
        while not here.leadership.is_held:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert here.holder == "me"
        yield here


async def test_an_operator_that_shuts_down_releases_its_lease() -> None:
    async with elected() as here:
        await here.election.resign()
        assert here.holder is None


@pytest.mark.parametrize("is_late", [False, True])
async def test_an_operator_that_shuts_down_late_does_not_release_the_lease_of_another(is_late: bool) -> None:
    """A write that lasts until the lease expires delays the release, and another operator may hold the lease."""
    async with elected() as here:
        with here.leadership.writing():
            resigning = asyncio.create_task(here.election.resign())
            await asyncio.sleep(0)
            assert here.holder == "me", "the lease is not released before the write has ended"
            found = here.api.found(LEASE, "operator")
            assert found is not None
            if is_late:
                here.api.put({**found, "spec": {**found["spec"], "holderIdentity": "another"}})
            here.clock.pass_time(15.0)
            await resigning
        assert here.holder == ("another" if is_late else None)


async def test_an_operator_retries_a_hanging_read_of_its_lease_before_it_expires(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A connection to an API server on a dead node stays silent; the next one goes to another server."""
    async with elected() as here:
        get, hung = here.api.get, asyncio.Event()

        async def hang_once(*about: Any) -> dict[str, Any] | None:
            if not hung.is_set():
                hung.set()
                await asyncio.Event().wait()
            return await get(*about)

        monkeypatch.setattr(here.api, "get", hang_once)
        written = len(here.api.writes)
        running = asyncio.create_task(here.election.run())
        await hung.wait()
        here.clock.pass_time(READ_S)
        while here.clock.waits_s != [RETRY_S]:
            await asyncio.sleep(0)
        here.clock.pass_time(RETRY_S)
        while len(here.api.writes) == written:
            await asyncio.sleep(0)
        assert here.leadership.is_held
        assert "the lease air/operator could not be acquired or renewed: no answer in time" in caplog.messages
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_unanswered_attempts_count_as_an_outage_of_the_api_server() -> None:
    async with elected() as here:
        here.api.refuse = refuses("/leases", KubeUnreachable("connection refused"))
        await here.election._attempt()
        here.clock.pass_time(OUTAGE_S_MIN)
        here.api.refuse = refuses("/nothing", ValueError())
        await here.election._attempt()
        assert here.outages.since_last_s == 0
