"""Two operators with one lease on a real API server: the other one takes over after a shutdown or a cut connection."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas_operator.leader_election import DURATION_S
from e2e.operators.refusing_proxy import RefusingProxy
from e2e.world import World, acts, rounds_of, world_of_one
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.soak import took
from local_kubernetes.control_plane import ControlPlane

pytestmark = pytest.mark.slow
SLACK_S = 5.0
"""A released lease must be taken over this much sooner than an expired one."""
POLL_S = 0.1

Start = Callable[..., ServerProcess]


@pytest.fixture
def world(defined_api_server: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    namespace = f"leaders-{os.getpid()}-{uuid4().hex[:8]}"
    with world_of_one(defined_api_server, namespace, broker, tmp_path) as found:
        yield found


@pytest.fixture
def start(world: World) -> Iterator[Start]:
    """Return a function that starts one of the two operators."""
    started: list[ServerProcess] = []

    def one(**environment: str) -> ServerProcess:
        started.append(world.operator(LEASE=f"{world.namespace}/operator", **environment))
        return started[-1]

    yield one
    for each in started:
        if each.running:
            each.close()


def both(start: Start) -> tuple[ServerProcess, ServerProcess]:
    """Start two operators; return the one that acts and the one that stands by."""
    first = start()
    wait_for(lambda: acts(first))
    second = start()
    wait_for(lambda: "stands by" in second.log_path.read_text())
    return first, second


def test_only_one_operator_acts_and_the_other_takes_over_when_it_shuts_down(world: World, start: Start) -> None:
    first, second = both(start)
    world.apply("before", partitions=1)
    world.await_ready("before")
    assert (acts(first), acts(second)) == (True, False)
    assert rounds_of(second) == 0
    began = time.monotonic()
    first.stop()
    wait_for(lambda: acts(second))
    took("the other acts once the lease is released", time.monotonic() - began, DURATION_S - SLACK_S)
    world.apply("after", partitions=1)
    world.await_ready("after")


def retention_of(world: World, topic: str) -> str:
    about = ConfigResource(ResourceType.TOPIC, topic)
    return str(world.admin.describe_configs([about])[about].result(PATIENCE_S)["retention.ms"].value)


def set_retention(world: World, topic: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    about = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    world.admin.incremental_alter_configs([about])[about].result(PATIENCE_S)


async def test_an_operator_cut_off_from_the_api_server_stops_writing_before_the_other_acts(
    world: World, start: Start, tmp_path: Path
) -> None:
    topic = f"flights-{world.namespace}"

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not await asyncio.to_thread(condition):
                await asyncio.sleep(POLL_S)

    proxy = RefusingProxy(world.plane)
    async with proxy.running(tmp_path / "kubeconfig"):
        first = start(KUBECONFIG=str(tmp_path / "kubeconfig"))
        await until(lambda: acts(first))
        world.apply(topic, partitions=1, config={"retention.ms": 1000})
        await until(lambda: world.ready(topic)[0] == "True")
        second = start()
        await until(lambda: "stands by" in second.log_path.read_text())
        proxy.refuse(503)
        await until(lambda: acts(second))
        assert not await asyncio.to_thread(acts, first), "two operators act at once"
        # An operator that has not seen the pause would still revert changes made in Kafka.
        world.apply(topic, partitions=1, config={"retention.ms": 1000}, pause=True)
        await until(lambda: world.ready(topic)[0] == "Unknown")
        await asyncio.to_thread(set_retention, world, topic, "5000")
        rounds = await asyncio.to_thread(rounds_of, second)
        await until(lambda: rounds_of(second) >= rounds + 3)
        assert await asyncio.to_thread(retention_of, world, topic) == "5000"
        proxy.open()
        await until(lambda: "stands by" in first.log_path.read_text())
        assert not await asyncio.to_thread(acts, first)
