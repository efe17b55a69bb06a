"""Fuzzed records of `__consumer_offsets`, in every version, do no harm to other groups."""

import os
from random import Random

import pytest
from coordinator_world import Client, World

from barnabas_core.errors import ApiError
from fuzz.stored_records import GROUPS, hostile_record

SEED = int(os.environ.get("FUZZ_SEED", "20261126"))
LOADS = 60
RECORDS = 100


def test_fuzzed_records_cause_no_bugs_and_do_not_affect_other_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    restored = left_out = 0
    for number in range(LOADS):
        world = World()
        random = Random(f"{SEED}:{number}")
        client = Client(world, "a", group_id="canary")
        client.commit(("flights", 0, 7))
        world.timers.pass_time()
        world.log.write(0, [hostile_record(random)[1] for _ in range(RECORDS)])
        world.crash(survivors=1)
        restored += sum(len(each.members) for each in world.coordinator.list_groups())
        left_out += world.coordinator.runtime.left_out_count()
        _live(world, random)
        assert client.committed() == {"flights-0": 7}, number
        assert not [record for record in caplog.records if "bug" in record.message], f"seed {SEED}, load {number}"
        caplog.clear()
    assert restored > LOADS
    assert left_out > LOADS


def _listed(world: World) -> list[str]:
    return [group.group_id for group in world.coordinator.list_groups()]


def _live(world: World, random: Random) -> None:
    """Let members join, sessions expire, and offsets and groups be read and removed."""
    for _ in range(10):
        client = Client(world, "new", random.choice((None, "gate", "hall")), random.choice(GROUPS))
        try:
            client.join()
            client.sync(**{client.member_id: "part"})
            client.heartbeat()
            client.commit(("plain", 0, 1))
        except ApiError:
            continue
        world.timers.pass_time(random.choice((0, 0.2, 9, 60)))
    world.coordinator.start()
    world.timers.pass_time(600)
    for _ in world.coordinator.group_offsets():
        pass
    for group_id in _listed(world):
        world.coordinator.delete_group(group_id, lambda _: None) if group_id != "canary" else None
    world.timers.pass_time(3_600)
