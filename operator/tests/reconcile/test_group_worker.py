"""The worker for groups over an API server of a dict: what it writes, and how seldom."""

import asyncio
import queue
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag, TopicLag
from barnabas_lag.evaluation.progress import Status
from barnabas_operator.kafka.group_looks import Looked
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.groups.group_seen import NOT_FOUND, GroupSeen
from barnabas_operator.planning.groups.target_scale import BEFORE_RESET, BeforeReset, before_text
from barnabas_operator.reconcile.groups.group_statuses import NUMBERS_AT_ONCE_MAX, NUMBERS_EVERY_S
from barnabas_operator.reconcile.groups.group_worker import AWAY_S, GroupWorker
from barnabas_operator.reconcile.kind_reconciler import Bodies, ReconcilerEnvironment
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.api_objects import resource_of
from barnabas_operator.resources.cluster import Cluster
from harness.kube_memory import KubeMemory, no_server
from harness.worker_world import KEY, environment_of, resource

WAIT_S = 30.0
CLUSTER = resource_of(Cluster, resource("Cluster", "one"))
SETTINGS = OperatorSettings("broker:dev", (), "brokers", batch_s=0.0, busy_s=0.0, group_look_s=0.0)
FLIGHTS = TopicPartition("flights", 0)
Json = dict[str, Any]
Found = Mapping[str, GroupSeen]


class ManualClock:
    """Stands still."""

    def __init__(self) -> None:
        self.passed_s = 1000.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self.passed_s * 1000)

    def monotonic_s(self) -> float:
        return self.passed_s


class LooksMemory:
    """Each look waits until somebody says what is found; None: nobody answers."""

    def __init__(self) -> None:
        self.asked = queue.Queue[Collection[str]]()
        self.found = queue.Queue[Found | None]()

    def look(self, _connected: Callable[[], Any], group_ids: Collection[str]) -> Looked:
        self.asked.put(group_ids)
        found = self.found.get(timeout=WAIT_S)
        if found is None:
            raise ClusterUnreachable("nobody is there")
        return Looked({name: each for name, each in found.items() if name in group_ids}, "")


def lagging(lag: int, status: Status = Status.OK, state: str = "Stable") -> GroupSeen:
    part = PartitionLag(10, lag, 10, float(lag), 1.0, status)
    topic = TopicLag(lag, lag, 10, 10, 0.0, 0.0, status)
    return GroupSeen(state=state, members=1, lags=GroupLags(1, {FLIGHTS: part}, {"flights": topic}))


GONE = GroupSeen(state=NOT_FOUND, members=0, lags=GroupLags(None, {}, {}))


class World:
    """One worker, and what is around it."""

    def __init__(self, api: KubeMemory) -> None:
        self.api, self.clock, self.looks = api, ManualClock(), LooksMemory()
        environment = environment_of(api, settings=SETTINGS, clock=self.clock)
        statuses = StatusWriter(api, self.clock)
        tools = ReconcilerEnvironment(
            KEY, environment, statuses, lambda _: pytest.fail("asks as Topics do"), self.bodies
        )
        self.worker = GroupWorker(tools, self.looks)

    def bodies(self, kind: str) -> Bodies:
        return {each["metadata"]["name"]: each for each in self.api.of_kind(kind)}

    def put(self, name: str, **spec: Any) -> None:
        self.api.put(resource("ConsumerGroup", name, **spec))

    def begin(self) -> None:
        self.worker.begin(CLUSTER, self.bodies("ConsumerGroup"))

    def advance(self, seconds: float) -> None:
        """While a look is under way. It has taken so long then, and the worker would rest as long."""
        self.clock.passed_s += seconds
        self.worker.rest(self.bodies("ConsumerGroup"), "to be woken")
        self.begin()

    async def next_look(self) -> Collection[str]:
        """Whom it is about; all before it has been told."""
        return await asyncio.to_thread(self.looks.asked.get, timeout=WAIT_S)

    async def find(self, found: Found | None) -> int:
        """The look that waits finds this: how many requests it takes until the next one."""
        before = len(self.api.writes)
        self.looks.found.put(found)
        await self.next_look()
        return len(self.api.writes) - before

    def status(self, name: str) -> Json:
        found: Json = (self.api.found("ConsumerGroup", name) or {}).get("status", {})
        return found

    def said(self, name: str, kind: str = "Ready") -> tuple[str, str]:
        (told,) = (each for each in self.status(name)["conditions"] if each["type"] == kind)
        return told["status"], told["reason"]


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with no_server() as connection:
            world = World(KubeMemory(connection))
            running = asyncio.create_task(world.worker.run())
            try:
                await scenario(world)
            finally:
                world.worker.stop()
                running.cancel()
                world.looks.found.put({})
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(whole())


def test_two_thousand_groups_cost_what_is_new_and_a_few_numbers_a_look() -> None:
    names = [f"group-{number}" for number in range(2_000)]

    async def scenario(world: World) -> None:
        for name in names:
            world.put(name)
        world.begin()
        assert set(await world.next_look()) == set(names)
        assert await world.find(dict.fromkeys(names, lagging(500))) == len(names)
        assert await world.find(dict.fromkeys(names, lagging(500))) == 0
        assert await world.find(dict.fromkeys(names, lagging(700))) == 0, "numbers were written a moment ago"
        world.advance(NUMBERS_EVERY_S)
        assert await world.find(dict.fromkeys(names, lagging(702))) == NUMBERS_AT_ONCE_MAX
        assert await world.find(dict.fromkeys(names, lagging(702))) == NUMBERS_AT_ONCE_MAX
        written = [name for name in names if world.status(name)["lag"] == 700]
        assert len(written) == 2 * NUMBERS_AT_ONCE_MAX, "those that have waited longest have their turn first"
        changed = {**dict.fromkeys(names, lagging(702)), "group-7": lagging(702, Status.STALL)}
        assert await world.find(changed) <= NUMBERS_AT_ONCE_MAX + 2, "a status and an Event at once"
        assert world.status("group-7")["evaluation"] == "STALL"

    play(scenario)


def test_a_group_that_nobody_can_look_at_is_told_after_a_while_and_its_numbers_go() -> None:
    async def scenario(world: World) -> None:
        world.put("billing", lagObjective={"maxRecords": 5})
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3)})
        assert world.said("billing") == ("True", "Reconciled")
        assert await world.find(None) == 0
        world.advance(AWAY_S + 1)
        await world.find(None)
        assert world.said("billing") == ("False", "ClusterNotReady")
        assert world.said("billing", "WithinObjective") == ("Unknown", "ClusterNotReady")
        assert "lag" not in world.status("billing")
        assert world.status("billing")["groupId"] == "billing"
        await world.find({"billing": lagging(3)})
        assert world.said("billing") == ("True", "Reconciled")

    play(scenario)


def test_a_group_that_was_there_before_is_not_taken_over_where_the_spec_says_so() -> None:
    async def scenario(world: World) -> None:
        world.put("billing", adopt=False)
        world.put("new", adopt=False)
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3), "new": GONE})
        assert world.said("billing") == ("False", "ResourceConflict")
        assert "groupId" not in world.status("billing")
        await world.find({"billing": lagging(3), "new": lagging(3)})
        assert world.said("new") == ("True", "Reconciled")

    play(scenario)


def test_a_group_that_goes_is_an_event_and_no_error() -> None:
    async def scenario(world: World) -> None:
        world.put("billing")
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3)})
        await world.find({"billing": GONE})
        assert world.said("billing") == ("True", "Reconciled")
        assert world.status("billing")["state"] == "NotFound"
        assert [reason for reason, _ in world.api.events()] == ["GroupGone"]

    play(scenario)


def test_a_paused_group_is_looked_at_and_left_alone() -> None:
    async def scenario(world: World) -> None:
        world.put("billing", pause=True, offsets={"reset": {"id": "a", "to": {"earliest": {}}}})
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3)})
        assert world.said("billing") == ("Unknown", "Paused")
        assert world.status("billing")["lag"] == 3
        assert "OffsetsReset" not in [each["type"] for each in world.status("billing")["conditions"]]

    play(scenario)


def test_what_cannot_be_read_is_told_and_holds_no_other_up() -> None:
    async def scenario(world: World) -> None:
        world.put("billing", lagObjective={"maxRecords": "many"})
        world.put("pay")
        world.begin()
        assert set(await world.next_look()) == {"pay"}
        await world.find({"pay": lagging(3)})
        assert world.said("billing") == ("False", "InvalidSpec")
        assert world.said("pay") == ("True", "Reconciled")

    play(scenario)


def test_a_cluster_that_is_paused_is_no_more_looked_at_and_a_resource_goes_where_it_may() -> None:
    async def scenario(world: World) -> None:
        world.put("billing")
        world.worker.rest(world.bodies("ConsumerGroup"), "Cluster one is paused")
        async with asyncio.timeout(WAIT_S):
            while "conditions" not in world.status("billing"):
                await asyncio.sleep(0)
        assert world.said("billing") == ("False", "ClusterNotReady")
        assert world.looks.asked.empty()

    play(scenario)


def test_a_look_that_hangs_is_noticed() -> None:
    async def scenario(world: World) -> None:
        world.put("billing")
        world.begin()
        await world.next_look()
        world.advance(700.0)
        assert world.worker.idle_s == 700.0
        await world.find({"billing": lagging(3)})

    play(scenario)


def test_a_protected_group_stays_with_its_resource_and_one_that_was_never_claimed_goes() -> None:
    async def scenario(world: World) -> None:
        world.put("billing", deletionPolicy="Protect")
        world.put("pay", deletionPolicy="DeleteGroup", adopt=False)
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3), "pay": lagging(3)})
        for name in ("billing", "pay"):
            found = world.api.found("ConsumerGroup", name)
            assert found is not None
            world.api.put({**found, "metadata": {**found["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})
        world.begin()
        world.looks.found.put({})
        async with asyncio.timeout(WAIT_S):
            while world.api.found("ConsumerGroup", "pay") is not None or world.said("billing")[0] != "False":
                await asyncio.sleep(0)
        assert world.said("billing") == ("False", "DeletionProtected")

    play(scenario)


SCALING = {"target": {"name": "app"}}
RESET = {"id": "a", "to": {"earliest": {}}, "whenActive": "ScaleDown"}


def put_target_at_0(world: World, name: str = "billing") -> None:
    """A reset of this resource has scaled it down."""
    before = before_text(BeforeReset(name, "a", 3))
    meta = {"name": "app", "namespace": "air", "annotations": {BEFORE_RESET: before}}
    world.api.put({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": {"replicas": 0}})


def replicas(world: World) -> int:
    found = world.api.found("Deployment", "app")
    assert found is not None
    return int(found["spec"]["replicas"])


def put_ending(world: World, name: str, **spec: Any) -> None:
    """Never told anything: its status was lost, or an operator died before it wrote it."""
    world.api.put(resource("ConsumerGroup", name, goes=True, held=True, **spec))


async def gone(world: World, name: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while world.api.found("ConsumerGroup", name) is not None:
            await asyncio.sleep(0)


def test_a_target_at_0_for_a_reset_is_scaled_up_before_the_resource_goes_whoever_has_the_group() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        put_ending(world, "billing", groupId="pay", scaling=SCALING, offsets={"reset": RESET})
        world.put("other", groupId="pay")
        world.begin()
        await world.next_look()
        world.looks.found.put({"pay": lagging(3)})
        await gone(world, "billing")
        assert replicas(world) == 3

    play(scenario)


@pytest.mark.parametrize("spec", [{}, {"pause": True}], ids=["Retain", "paused"])
def test_a_target_at_0_for_a_reset_is_scaled_up_although_the_cluster_is_away(spec: Json) -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        put_ending(world, "billing", scaling=SCALING, offsets={"reset": RESET}, **spec)
        world.worker.rest(world.bodies("ConsumerGroup"), "Cluster one is paused")
        await gone(world, "billing")
        assert replicas(world) == 3
        assert world.looks.asked.empty()

    play(scenario)


def test_a_protected_resource_that_shall_go_leaves_its_target_not_at_0() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        spec = {"scaling": SCALING, "offsets": {"reset": RESET}, "deletionPolicy": "Protect"}
        put_ending(world, "billing", **spec)
        ending = world.api.found("ConsumerGroup", "billing")
        assert ending is not None
        world.api.put({**ending, "status": {"groupId": "billing", "cluster": "one"}})
        world.begin()
        async with asyncio.timeout(WAIT_S):
            while "conditions" not in world.status("billing"):
                await asyncio.sleep(0)
        assert world.said("billing") == ("False", "DeletionProtected")
        assert replicas(world) == 3

    play(scenario)


def test_a_reset_that_is_taken_out_while_the_target_cannot_be_read_is_cleaned_up_later() -> None:
    async def scenario(world: World) -> None:
        put_target_at_0(world)
        waits = {"type": "OffsetsReset", "status": "False", "reason": "ScaledDown", "lastTransitionTime": "x"}
        status = {"groupId": "billing", "cluster": "one", "observedGeneration": 1, "conditions": [waits]}
        body = resource("ConsumerGroup", "billing", held=True, scaling=SCALING)
        world.api.put({**body, "metadata": {**body["metadata"], "generation": 2}, "status": status})
        refused = KubeRefused(403, "Forbidden", "not now")
        world.api.refuse = lambda _, path, __: refused if "/deployments/" in path else None
        world.begin()
        await world.next_look()
        await world.find({"billing": lagging(3)})
        assert world.said("billing") == ("False", "KubernetesError")
        held = world.api.found("ConsumerGroup", "billing")
        assert held is not None
        assert held["metadata"]["finalizers"], "a deletion would leave the target at 0"
        world.api.refuse = lambda *_: None
        await world.find({"billing": lagging(3)})
        assert replicas(world) == 3

    play(scenario)


def test_the_younger_resource_does_nothing_while_the_older_one_waits_for_its_finalizer() -> None:
    async def scenario(world: World) -> None:
        old, young = (resource("ConsumerGroup", name, groupId="pay") for name in ("old", "young"))
        old["spec"]["deletionPolicy"] = "DeleteGroup"
        old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        young["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
        world.api.put(old)
        world.api.put(young)
        conflict = KubeRefused(409, "Conflict", "others wrote it")
        world.api.refuse = lambda _, path, __: conflict if path.endswith("/old") else None
        world.begin()
        await world.next_look()
        await world.find({"pay": lagging(3)})
        assert world.said("young") == ("False", "ResourceConflict")
        assert "groupId" not in world.status("young")

    play(scenario)
