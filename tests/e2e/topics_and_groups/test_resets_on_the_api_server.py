"""Declared resets on a real API server and a real broker, with librdkafka consumers."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from barnabas_core.group_lag import RESET_MARK, reset_mark
from barnabas_kafka.security import IN_CLEAR
from barnabas_operator.admission import Previewed, answer
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.group_admin import preview
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from e2e.topics_and_groups.reset_world import COMMITTED, RECORDS, REPLICAS, ResetWorld, ShareWorld
from e2e.webhook_server import webhook
from harness.barnabas_server import prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.plugin import plugin

BACK = {"id": "2026-11-a", "to": {"shiftBy": -3}}
"""A second execution of this reset would be visible."""
ONCE = (COMMITTED - 3, f"{RESET_MARK}2026-11-a")
NOW = "2026-11-22T12:00:00Z"

numbers = itertools.count()
NewWorld = Callable[[], ResetWorld]


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker whose groups do not wait for more members."""
    alone = {"broker.id": "0", "offsets.topic.replication.factor": "1"}
    of_share_groups = {"share.coordinator.state.topic.replication.factor": "1"}
    properties = {**alone, **of_share_groups, "group.initial.rebalance.delay.ms": "0"}
    with closing(prepare_barnabas(tmp_path_factory.mktemp("broker"), properties)) as process:
        process.launch()
        process.await_port()
        yield process


@pytest.fixture
def new_world(defined_api_server: ControlPlane, quick_broker: ServerProcess) -> Iterator[NewWorld]:
    worlds: list[ResetWorld] = []

    def new() -> ResetWorld:
        worlds.append(ResetWorld(defined_api_server, quick_broker.bootstrap, f"resets-{next(numbers)}"))
        worlds[-1].commit()
        return worlds[-1]

    yield new
    for each in worlds:
        each.close()


@pytest.fixture
def world(new_world: NewWorld) -> ResetWorld:
    return new_world()


def test_a_reset_is_carried_out_only_once_even_if_its_resource_is_recreated(world: ResetWorld) -> None:
    world.declare(BACK)
    numbers = "the offsets of 1 partition were set; the group skips 0 records and reads 3 again"
    told = ("True", "ResetDone", f"the reset 2026-11-a was carried out: {numbers}")
    assert world.look() == told
    assert world.committed() == ONCE
    planned = {"topic": world.name, "partition": 0, "from": COMMITTED, "to": COMMITTED - 3}
    done = world.status()["reset"]
    assert (done["id"], done["partitions"], done["again"], done["plan"]) == ("2026-11-a", 1, 3, [planned])
    world.commit(RECORDS)  # This is the commit of a consumer that has read all.
    world.look()
    assert world.committed() == (RECORDS, ONCE[1])
    world.declare(BACK)
    before = "the reset 2026-11-a was carried out before, as the group shows"
    assert world.look() == ("True", "ResetDone", before)
    assert world.committed() == (RECORDS, ONCE[1])


@pytest.fixture
def workers(defined_api_server: ControlPlane, quick_broker: ServerProcess) -> Iterator[ShareWorld]:
    with closing(ShareWorld(defined_api_server, quick_broker.bootstrap, f"resets-{next(numbers)}")) as world:
        yield world


def test_a_reset_of_a_share_group_scales_its_workers_down_and_up_again(workers: ShareWorld) -> None:
    workers.deploy()
    wait_for(lambda: workers.accepted, lambda count: count == RECORDS)
    to_begin = {"id": "again", "to": {"earliest": {}}, "topics": [workers.name], "whenActive": "ScaleDown"}
    workers.declare(to_begin, type="share")
    wait_for(lambda: workers.look()[1], lambda reason: reason == "ResetBegins")
    assert (workers.target()["spec"]["replicas"], workers.members()) == (0, 0)
    assert workers.status()["reset"]["groupEpoch"] == workers.described().share_epoch
    status, reason, message = workers.look()
    assert (status, reason) == ("True", "ResetDone"), message
    assert workers.target()["spec"]["replicas"] == REPLICAS
    wait_for(lambda: workers.accepted, lambda count: count == 2 * RECORDS)
    workers.look()
    assert workers.status()["reset"]["again"] == RECORDS


def test_a_reset_of_a_group_with_members_is_refused_or_waits(world: ResetWorld) -> None:
    world.deploy()
    world.declare(BACK)
    status, reason, message = world.look()
    assert (status, reason) == ("False", "GroupActive")
    assert message.startswith(f"group {world.name} has 1 member: pod at 127.0.0.1; stop these members")
    world.change({**BACK, "whenActive": "Wait"})
    assert world.look()[:2] == ("False", "WaitingForMembers")
    assert world.committed() == (COMMITTED, "")
    world.plane.kubectl("-n", world.name, "scale", "deployment/billing", "--replicas=0")
    wait_for(world.members, lambda count: count == 0, PATIENCE_S)
    assert world.look()[:2] == ("True", "ResetDone")
    assert world.committed() == ONCE


def test_the_scaling_target_cannot_change_while_it_is_scaled_down_for_a_reset(world: ResetWorld) -> None:
    world.declare(None)
    waits = {
        "type": "OffsetsReset",
        "status": "False",
        "reason": "ScaledDown",
        "message": "",
        "lastTransitionTime": NOW,
    }

    def says(spec: dict[str, Any]) -> str:
        change = ("patch", "consumergroup", world.name, "--type=merge", f"-p={json.dumps({'spec': spec})}")
        return world.plane.kubectl.ask("-n", world.name, *change).stderr

    world.plane.requests.merge_status("ConsumerGroup", world.name, world.name, {"conditions": [waits]})
    for spec in ({"scaling": None}, {"scaling": {"target": {"name": "other"}}}):
        assert (
            "spec.scaling.target cannot change while the workload is scaled down for a reset; wait until the reset"
            in says(spec)
        )
    assert says({"scaling": {"lagThreshold": 5}, "pause": True}) == ""
    world.plane.requests.merge_status("ConsumerGroup", world.name, world.name, {"conditions": []})
    assert says({"scaling": None}) == ""


def test_a_group_or_its_offsets_are_deleted_only_without_members(world: ResetWorld) -> None:
    world.deploy()
    world.declare(None)
    for policy in ("DeleteGroup", "DeleteOffsets"):
        refusal = world.end(policy)
        assert refusal is not None
        assert refusal == (
            "GroupActive",
            (
                f"spec.deletionPolicy is {policy}, but group {world.name} has 1 member: pod at 127.0.0.1; the deletion "
                "continues after all members have left; to keep the group, set spec.deletionPolicy to Retain"
            ),
        )
    assert world.end("Retain") is None
    assert world.committed() == (COMMITTED, "")
    world.plane.kubectl("-n", world.name, "scale", "deployment/billing", "--replicas=0")
    wait_for(world.members, lambda count: count == 0, PATIENCE_S)
    assert world.end("DeleteOffsets") is None
    assert world.committed() == (-1001, "")
    world.commit()
    assert world.end("DeleteGroup") is None
    listed = world.client.admin.list_consumer_groups().result(PATIENCE_S)
    assert world.name not in {each.group_id for each in listed.valid}
    assert world.end("DeleteGroup") is None


def warnings_of(world: ResetWorld, reset: dict[str, Any]) -> list[str]:
    """Return the warnings of `kubectl apply --dry-run=server`."""
    done = world.plane.kubectl.ask("apply", "--dry-run=server", "-f-", stdin=json.dumps(world.manifest(reset)))
    assert done.returncode == 0, done.stderr
    return [line.removeprefix("Warning: ") for line in done.stderr.splitlines() if line.startswith("Warning: ")]


def test_a_dry_run_warns_about_the_effect_of_a_reset(world: ResetWorld) -> None:
    inventory = Inventory()
    inventory.keep(world.cluster_manifest(), is_gone=False)

    async def ask(_: Cluster, group: Previewed) -> tuple[str, ...]:
        assert isinstance(group, ConsumerGroup)
        return await asyncio.to_thread(preview, world.bootstrap, IN_CLEAR, group, SystemClock())

    async def nothing_wrong(_now: object, _before: object) -> None:
        return None

    async def answered(asked: dict[str, Any]) -> dict[str, Any]:
        return await answer(asked, inventory, lambda _: None, nothing_wrong, ask)

    with webhook(world.plane, lambda asked: asyncio.run(answered(asked))):
        where = f"{world.name}-0 from {COMMITTED} to {COMMITTED - 3}"
        numbers = "the offsets of 1 partition are set; the group skips 0 records and reads 3 again"
        told = f"the effect of the reset 2026-11-a of group {world.name} now: {numbers}"
        assert warnings_of(world, BACK) == [told, where]
        assert world.committed() == (COMMITTED, "")
        (refused,) = warnings_of(world, {**BACK, "topics": ["nothing"]})
        assert refused.startswith(
            "the reset 2026-11-a changes no offsets: spec.offsets.reset.topics: the cluster has no topic"
        )
        world.deploy()
        members = (
            f"no offsets are reset while group {world.name} has 1 member: pod at 127.0.0.1; "
            "spec.offsets.reset.whenActive is Wait"
        )
        assert warnings_of(world, {**BACK, "whenActive": "Wait"}) == [told, where, members]
        world.close()
        wait_for(world.members, lambda count: count == 0, PATIENCE_S)
        world.commit(COMMITTED, reset_mark("2026-11-a", ()).rstrip("\0"))
        (done,) = warnings_of(world, BACK)
        assert done == (
            f"the reset 2026-11-a of group {world.name} was carried out before; another reset needs another id"
        )


def test_the_kubectl_plugin_shows_the_plan_of_a_reset_that_it_requests(world: ResetWorld) -> None:
    world.declare(None)
    options = ("--to=-3", "--id=by-hand", "--dry-run", "-n", world.name)
    process = plugin(world.plane.kubectl, "reset", world.name, *options)
    wait_for(lambda: (world.look(), process.poll())[1], lambda code: code is not None)
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert out.startswith("DryRun: spec.offsets.reset.dryRun is true")
    assert out.splitlines()[-1].split() == [world.name, "0", str(COMMITTED), str(COMMITTED - 3)]
    assert world.committed()[0] == COMMITTED
