"""Plans of `skew`: no less even than before, no rack lost, no disk filled, no more moves than allowed."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import msgspec
import pytest

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.planning.options import Ending
from barnabas_jobs.planning.rebalance_plan import (
    LogDir,
    Placement,
    Plan,
    Reassigned,
    Replica,
    bounded_json,
    broker_loads,
    by_broker,
    dir_bytes,
    log_dir_loads,
    plan_rebalance,
    reassignment_json,
)
from barnabas_jobs.planning.skew_report import evenness

GIB = 1 << 30
ROOMY = DiskSpace(900 * GIB, 1000 * GIB)
SEEDS = range(60)


def placed(
    rows: Mapping[int, tuple[int, ...]],
    sizes: Mapping[int, int],
    racks: Mapping[int, str | None],
    dirs: Mapping[int, DiskSpace] | None = None,
) -> Placement:
    """Return the placement of one topic on brokers with one log dir each, `/d`."""
    spaces = {LogDir(broker, "/d"): (dirs or {}).get(broker, ROOMY) for broker in racks}
    return Placement(
        racks=racks,
        spaces=spaces,
        rows={TopicPartition("t", number): row for number, row in rows.items()},
        leaders={TopicPartition("t", number): row[0] for number, row in rows.items()},
        replicas={
            TopicPartition("t", number): {broker: Replica(LogDir(broker, "/d"), sizes[number]) for broker in row}
            for number, row in rows.items()
        },
        topic_ids={"t": "AAAAAAAAAAAAAAAAAAAAAA"},
    )


def rows_of(plan: Plan) -> dict[int, tuple[int, ...]]:
    """Return the planned replicas by partition."""
    return {each.partition: each.replicas for each in plan.partitions}


def test_brokers_become_even_with_the_fewest_moves() -> None:
    """Broker 0 has all 60 GiB: one partition of 20 GiB goes to each of the other two."""
    found = placed({0: (0,), 1: (0,), 2: (0,)}, dict.fromkeys(range(3), 20 * GIB), dict.fromkeys(range(3)))
    plan = plan_rebalance(found, 50)
    assert len(plan.partitions) == 2
    assert by_broker(plan.dirs, found.racks) == dict.fromkeys(range(3), 20 * GIB)
    assert plan.moved_bytes == 40 * GIB
    assert [(each.bytes, each.bytes_after) for each in broker_loads(found, plan.dirs, {})] == [
        (60 * GIB, 20 * GIB),
        (0, 20 * GIB),
        (0, 20 * GIB),
    ]
    assert evenness(broker_loads(found, plan.dirs, {})).after == 1.0


def test_a_plan_within_the_limit_of_moves_begins_with_the_most_useful_one() -> None:
    found = placed({0: (0,), 1: (0,), 2: (0,)}, {0: GIB, 1: 10 * GIB, 2: 9 * GIB}, {0: None, 1: None})
    plan = plan_rebalance(found, 1)
    assert rows_of(plan) == {1: (1,)}


def test_nothing_moves_if_brokers_are_even() -> None:
    found = placed({0: (0,), 1: (1,)}, {0: 100 * GIB, 1: 98 * GIB}, {0: None, 1: None})
    assert plan_rebalance(found, 50).partitions == []


def test_a_new_broker_gets_a_small_share_from_each_of_many_brokers() -> None:
    """None of the 30 brokers is 5 % above the mean, but the new one is empty."""
    rows = {number: (number // 30,) for number in range(900)}
    found = placed(rows, dict.fromkeys(rows, GIB), dict.fromkeys(range(31)))
    plan = plan_rebalance(found, 50)
    assert by_broker(plan.dirs, found.racks)[30] >= 27 * GIB


def test_replicas_stay_in_as_many_racks_as_before() -> None:
    """Only broker 1 could take a replica of broker 0, and it is in the rack of the other replica's broker, 2."""
    racks = {0: "a", 1: "b", 2: "b"}
    found = placed({0: (0, 2), 1: (0, 2)}, {0: 10 * GIB, 1: 10 * GIB}, racks)
    plan = plan_rebalance(found, 50)
    assert all(0 in each.replicas for each in plan.partitions)
    assert rows_of(plan) == {0: (0, 1)} or rows_of(plan) == {1: (0, 1)}


@pytest.mark.parametrize(
    "space", [DiskSpace(21 * GIB - 1, 1000 * GIB), DiskSpace(-1, -1)], ids=["nearly full", "not reported"]
)
def test_a_disk_gets_no_replica_without_room_for_it(space: DiskSpace) -> None:
    found = placed({0: (0,), 1: (0,)}, {0: 20 * GIB, 1: 20 * GIB}, {0: None, 1: None}, {1: space})
    assert plan_rebalance(found, 50).partitions == []


def test_incomplete_partitions_do_not_move() -> None:
    found = placed({0: (0,), 1: (0,)}, {0: 20 * GIB, 1: 20 * GIB}, {0: None, 1: None})
    alone = replace(found, left_alone=frozenset({TopicPartition("t", 0)}))
    assert set(rows_of(plan_rebalance(alone, 50))) == {1}
    away = replace(found, rows={**found.rows, TopicPartition("t", 0): (0, 7)})
    assert set(rows_of(plan_rebalance(away, 50))) == {1}


def test_replicas_move_between_log_dirs_of_a_broker_to_make_them_even() -> None:
    """The plan names the log dir, and the replica stays on its broker."""
    found = placed({0: (0,), 1: (0,)}, {0: 20 * GIB, 1: 20 * GIB}, {0: None})
    found = replace(found, spaces={**found.spaces, LogDir(0, "/e"): DiskSpace(800 * GIB, 1000 * GIB)})
    plan = plan_rebalance(found, 50)
    (moved,) = plan.partitions
    assert (moved.replicas, moved.log_dirs) == ((0,), ("/e",))
    assert [each.bytes_after for each in log_dir_loads(found, plan.dirs)] == [20 * GIB, 20 * GIB]


def test_log_dirs_on_one_disk_share_its_free_space() -> None:
    """Both log dirs of broker 1 report the same 25 GiB, so only one partition of 20 GiB fits."""
    spaces = {
        LogDir(0, "/d"): ROOMY,
        **dict.fromkeys((LogDir(1, "/d"), LogDir(1, "/e")), DiskSpace(25 * GIB, 1000 * GIB)),
    }
    rows = {TopicPartition("t", number): (0,) for number in range(6)}
    replicas = {each: {0: Replica(LogDir(0, "/d"), 20 * GIB)} for each in rows}
    found = Placement(dict.fromkeys(range(2)), spaces, rows, dict.fromkeys(rows, 0), replicas)
    assert len(plan_rebalance(found, 50).partitions) == 1


def test_the_plan_is_written_as_a_file_for_kafka_reassign_partitions() -> None:
    found = placed({0: (0,), 1: (0,), 2: (0,)}, dict.fromkeys(range(3), 20 * GIB), dict.fromkeys(range(3)))
    plan = plan_rebalance(found, 1)
    assert msgspec.json.decode(reassignment_json(found, plan.partitions)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "before": [0]}],
        "topic_ids": {"t": "AAAAAAAAAAAAAAAAAAAAAA"},
    }


def test_the_result_has_the_first_moves_of_a_long_plan_within_the_pods_limit() -> None:
    rows = dict.fromkeys(range(200), (0,))
    found = placed(rows, dict.fromkeys(rows, GIB), dict.fromkeys(range(8)))
    plan = plan_rebalance(found, 150)
    text, count = bounded_json(found, plan.partitions, 2560)
    assert 20 < count < 150
    assert (
        msgspec.json.decode(text)["partitions"]
        == msgspec.json.decode(reassignment_json(found, plan.partitions[:count]))["partitions"]
    )
    assert len(msgspec.json.encode(text)) <= 2560
    ending = Ending(exit=0, message="done", result={"plan": text, "topics": [{"topic": "t" * 200}] * 50})
    assert msgspec.json.decode(ending.shortened())["result"]["plan"] == text


@pytest.mark.parametrize("seed", SEEDS)
def test_random_plans_keep_the_limits_and_never_make_brokers_less_even(seed: int) -> None:
    """Replay: pytest spark-on-k8s/tests/test_rebalance_plan.py -k 'random_plans_keep and SEED'."""
    chance = random.Random(seed)
    found, moves_max = made(chance), chance.choice([1, 5, 50])
    plan = plan_rebalance(found, moves_max)
    incoming = [taken for each in plan.partitions for taken in taken_by(found, each)]
    assert len(incoming) <= moves_max
    for log_dir, space in found.spaces.items():
        taken = sum(size for taker, size in incoming if taker == log_dir)
        assert not taken or taken <= space.room_bytes
    now, then = (by_broker(dirs, found.racks) for dirs in (dir_bytes(found), plan.dirs))
    assert sum(then.values()) == sum(now.values())
    assert sum(size**2 for size in then.values()) <= sum(size**2 for size in now.values())
    assert max(then.values()) <= max(now.values())


def taken_by(found: Placement, moved: Reassigned) -> Iterator[tuple[LogDir, int]]:
    """Check the change of a partition; yield each log dir that gets a replica, with the replica's bytes."""
    where = TopicPartition(moved.topic, moved.partition)
    before, paths = found.rows[where], moved.log_dirs or ("any",) * len(moved.replicas)
    assert where not in found.left_alone
    assert moved.before == before
    assert len(moved.replicas) == len(set(moved.replicas)) == len(before) == len(paths)
    assert len({found.racks[n] for n in moved.replicas}) >= len({found.racks[n] for n in before})
    for broker, old, path in zip(moved.replicas, before, paths, strict=True):
        if path != "any" or broker != old:
            (taker,) = (each for each in found.spaces if each.broker == broker and path in (each.path, "any"))
            yield taker, max(replica.bytes for replica in found.replicas[where].values())


def made(chance: random.Random) -> Placement:
    """Return a random cluster."""
    racks = {n: chance.choice(["a", "b", None]) for n in range(chance.randint(1, 6))}
    spaces = {
        LogDir(n, f"/{index}"): DiskSpace(chance.randint(0, 200 * GIB), 200 * GIB)
        for n in racks
        for index in range(chance.randint(1, 3))
    }
    rows, replicas = {}, {}
    for number in range(chance.randint(0, 40)):
        where, size = TopicPartition("t", number), chance.choice([0, chance.randint(1, 30 * GIB)])
        rows[where] = tuple(chance.sample(sorted(racks), chance.choice([1, chance.randint(1, len(racks))])))
        replicas[where] = {
            n: Replica(chance.choice([d for d in spaces if d.broker == n]), size + chance.randint(0, size // 10))
            for n in rows[where]
        }
    alone = frozenset(where for where in rows if chance.random() < 0.1)
    return Placement(racks, spaces, rows, {where: row[0] for where, row in rows.items()}, replicas, left_alone=alone)
