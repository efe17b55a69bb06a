"""The worker for groups over an API server in a dict; tests say what each look at the groups finds."""

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag, Status, TopicLag
from barnabas_operator.kafka.group_admin import ObservedGroups
from barnabas_operator.planning.groups.reset_plan import NOT_FOUND, GroupSeen
from barnabas_operator.reconcile.groups.group_poller import GroupPoller
from barnabas_operator.reconcile.reconcile_parts import PollWorker
from barnabas_operator.reconcile.worker_environment import Bodies, OperatorSettings
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import JsonObject
from barnabas_operator.resources.schema_check import resource_of
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import ManualLoopClock
from harness.worker_world import looking, resource

CLUSTER = resource_of(Cluster, resource("Cluster", "one"))
SETTINGS = OperatorSettings("broker:dev", (), "brokers", batch_s=0.0, busy_s=0.0, group_poll_s=0.0)
FLIGHTS = TopicPartition("flights", 0)
Found = Mapping[str, GroupSeen]


class LooksMemory:
    """A `read` that waits until the test says what it finds; None means that no broker answers."""

    def __init__(self) -> None:
        self.asked = queue.Queue[Collection[str]]()
        self.found = queue.Queue[Found | None]()

    def read(self, _connected: Callable[[], Any], group_ids: Collection[str]) -> ObservedGroups:
        self.asked.put(group_ids)
        found = self.found.get(timeout=PATIENCE_S)
        if found is None:
            raise ClusterUnreachable("nobody is there")
        return ObservedGroups({name: each for name, each in found.items() if name in group_ids}, "")


def lagging(lag: int, status: Status = Status.OK, state: str = "Stable") -> GroupSeen:
    part = PartitionLag(10, 10 + lag, lag, 10, float(lag), 1.0, status)
    topic = TopicLag(lag, lag, 10, 10, 0.0, 0.0, status)
    return GroupSeen(state=state, members=1, lags=GroupLags(1, {FLIGHTS: part}, {"flights": topic}))


GONE = GroupSeen(state=NOT_FOUND, members=0, lags=GroupLags(None, {}, {}))


class World:
    """One worker with its clock, API server and looks."""

    def __init__(self, api: KubeMemory) -> None:
        self.api, self.clock, self.looks = api, ManualLoopClock(), LooksMemory()
        self.rounds = 0
        environment = looking(api, SETTINGS, self.clock, self.begun)
        self.leadership = environment.worker_environment.leadership
        self.worker = PollWorker(environment, GroupPoller(environment, self.looks))

    def bodies(self) -> Bodies:
        return self.api.by_name("ConsumerGroup")

    def begun(self, kind: str) -> Bodies:
        self.rounds += 1
        return self.api.by_name(kind)

    def put(self, name: str, **spec: Any) -> None:
        self.api.put(resource("ConsumerGroup", name, **spec))

    def begin(self) -> None:
        self.worker.begin(CLUSTER, self.bodies())

    def advance(self, seconds: float) -> None:
        """Let time pass while a look is under way: the worker rests as long as the look took."""
        self.clock.pass_time(seconds)
        self.worker.rest(self.bodies(), "to be woken")
        self.begin()

    async def next_progress(self) -> Collection[str]:
        """Return the groups of the next look; statuses of all earlier looks are written."""
        return await asyncio.to_thread(self.looks.asked.get, timeout=PATIENCE_S)

    async def find(self, found: Found | None) -> int:
        """Let the waiting look find this; return the number of requests until the next look."""
        before = len(self.api.writes)
        self.looks.found.put(found)
        await self.next_progress()
        return len(self.api.writes) - before

    def status(self, name: str) -> JsonObject:
        found: JsonObject = (self.api.found("ConsumerGroup", name) or {}).get("status", {})
        return found

    def said(self, name: str, kind: str = "Ready") -> tuple[str, str]:
        (told,) = (each for each in self.status(name)["conditions"] if each["type"] == kind)
        return told["status"], told["reason"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Run a worker for groups, over no groups yet."""
    async with no_server() as connection:
        found = World(KubeMemory(connection))
        running = asyncio.create_task(found.worker.run())
        yield found
        found.worker.stop()
        running.cancel()
        found.looks.found.put({})
        await asyncio.gather(running, return_exceptions=True)
