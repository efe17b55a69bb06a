"""F64: brokers get the operator's choice of log dirs; topics are created even if a broker cannot get it."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import (
    ClusterState,
    DesiredState,
    NamedRebalance,
    PlannedPartition,
    SkewPlan,
)
from barnabas_operator.planning.topics.reconcile_plan import NamedProgress
from barnabas_operator.planning.topics.replica_moves import CreateTopic, LogDirMove, NewReplica
from barnabas_operator.reconcile.topics.topic_reconciler import reconcile_topics
from barnabas_operator.reconcile.worker_environment import Seen
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import ConfigValue, Topic, TopicSpec
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.running_up import RunningUp
from harness.stock_client import StockClient

NOW = "2026-01-01T00:00:00Z"
TWO_DISKS = Storage(volumes=(Volume(id=0), Volume(id=1)))
HEAVY, LIGHT = b"x" * 500_000, b"x"
LIGHT_ONES = 9
HEAVY_ONES = 20
"""The number of heavy records: a move with less than 4 MiB to copy ends at once, however it is throttled."""


def wanted(partitions: int, storage: Storage = TWO_DISKS, brokers: int = 1, **config: str) -> DesiredState:
    """One Topic, `told`, in a Cluster whose settings may differ from those of its brokers."""
    named: dict[str, ConfigValue] = {name.replace("_", "."): value for name, value in config.items()}
    spec = ClusterSpec(brokers=Brokers(replicas=brokers), storage=storage, config=named)
    topic = Topic(metadata=ObjectMeta(name="told", uid="1"), spec=TopicSpec(partitions=partitions))
    return DesiredState(Cluster(metadata=ObjectMeta(name="c"), spec=spec), (topic,), ())


def fill(admin: ClusterAdmin, broker_id: int, heavy: Path, light: Path) -> None:
    """Fill log dirs of a broker: by partitions it would choose `heavy` for its next replica, by bytes `light`."""
    client = StockClient(admin.bootstrap)
    for name, path, partitions, value in (("heavy", heavy, 1, HEAVY), ("light", light, LIGHT_ONES, LIGHT)):
        topic = f"{name}-{broker_id}"
        admin.prefer_log_dirs({NewReplica(topic, number, broker_id): str(path) for number in range(partitions)})
        admin.apply([CreateTopic(topic, ((broker_id,),) * partitions, {})])
        for number in range(partitions):
            client.write(topic, [value], number)


def told_in(log_dir: Path) -> list[str]:
    return sorted(found.name for found in log_dir.glob("told-*"))


def told(partitions: int) -> list[str]:
    return [f"told-{number}" for number in range(partitions)]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningUp]:
    up = RunningUp(tmp_path)
    up.start()
    yield up
    up.close()


def test_a_plan_moves_a_replica_to_another_log_dir_of_its_broker(running: RunningUp) -> None:
    """The broker may be the only one of the cluster."""
    with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        first, second = (load.path for load in admin.disks([0]).loads(0))
        admin.prefer_log_dirs({NewReplica("told", 0, 0): first})
        admin.apply([CreateTopic("told", ((0,),), {})])
        client = StockClient(running.bootstrap)
        client.write("told", [HEAVY] * HEAVY_ONES, 0)
        moved = PlannedPartition("told", 0, (0,), (0,), (second,))
        plan = SkewPlan(1, (moved,), {"told": admin.cluster_state().topics["told"].topic_id})
        resources = wanted(1)._replace(named=NamedRebalance("even", plan))

        def progress() -> NamedProgress:
            named = reconcile_topics(admin, resources, NOW, Seen(admin.cluster_state())).ahead.named
            assert named is not None
            return named

        assert not progress().is_done
        assert wait_for(progress, lambda named: named.is_done).done == 1
        found = admin.disks([0]).log_dirs[0]
        assert [TopicPartition("told", 0) in found[path].replicas for path in (first, second)] == [False, True]
        assert client.read("told") == [HEAVY] * HEAVY_ONES
        nowhere = LogDirMove(TopicPartition("told", 0), 0, "/nowhere")
        (refusal,) = admin.move_between_log_dirs([nowhere])
        assert refusal == "could not move told-0 on broker 0 to /nowhere: LogDirNotFoundError"


def test_new_topics_and_added_partitions_use_the_log_dirs_that_the_operator_chose(
    running: RunningUp,
) -> None:
    with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        first, second = (Path(load.path) for load in admin.disks([0]).loads(0))
        fill(admin, 0, heavy=first, light=second)
        for partitions in (1, 3):
            seen = Seen(admin.cluster_state())
            reconcile_topics(admin, wanted(partitions, log_dirs_placement="least-bytes"), NOW, seen)
            assert (told_in(first), told_in(second)) == ([], told(partitions))


def test_the_operator_sends_no_log_dirs_to_brokers_with_one_declared_disk(running: RunningUp) -> None:
    """A choice would show here, because the broker has two log dirs although its Cluster declares one."""
    with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        first, second = (Path(load.path) for load in admin.disks([0]).loads(0))
        fill(admin, 0, heavy=first, light=second)
        resources = wanted(2, Storage(), log_dirs_placement="least-bytes")
        reconcile_topics(admin, resources, NOW, Seen(admin.cluster_state()))
        assert (told_in(first), told_in(second)) == (told(2), [])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Two brokers with three log dirs each, between which replicas move so slowly that they never arrive."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}
    with barnabas_cluster(tmp_path, brokers=2, properties=settings, log_dirs=3) as running:
        yield running


def make_one_that_moves(admin: ClusterAdmin, cluster: BarnabasCluster) -> list[str]:
    """Return two log dirs of broker 0: partition 0 moves from the first to the second; a third one has failed."""
    first, second, third = (load.path for load in admin.disks([0]).loads(0))
    admin.prefer_log_dirs({NewReplica("t", number, 0): first for number in range(2)})
    cluster.create_topic("t", 2, assignment=[[0], [0]])
    cluster.client().write("t", [HEAVY] * HEAVY_ONES, 0)
    admin.prefer_log_dirs({NewReplica("t", 0, 0): second})
    Path(third).rename(f"{third}-away")
    wait_for(lambda: [load.path for load in admin.disks([0]).loads(0)], lambda paths: paths == [first, second])
    assert list(Path(second).glob("t-0.*-future")), "the move has started"
    return [first, second]


def test_a_replica_that_moves_between_log_dirs_counts_in_the_target_log_dir(cluster: BarnabasCluster) -> None:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
        paths = make_one_that_moves(admin, cluster)
        found = admin.disks([0]).loads(0)
    assert [(load.path, load.partitions) for load in found] == [(path, 1) for path in paths]
    assert (found[0].empty_partitions, found[0].log_bytes) == (1, 0)
    assert min(load.free_bytes for load in found) > 0


def test_disks_are_known_only_of_brokers_that_answer(
    cluster: BarnabasCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
        make_one_that_moves(admin, cluster)
        cluster.kill(1)
        found = admin.disks([0, 1])
    assert found.log_dirs.keys() == {0}
    spaces = [each.space for each in found.log_dirs[0].values()]
    assert len(spaces) == 2
    assert all(0 < space.usable_bytes < space.total_bytes for space in spaces)
    assert found.replicas[0][TopicPartition("t", 0)] > HEAVY_ONES * len(HEAVY), (
        "the size of the whole replica, not of the part that has moved so far"
    )
    assert found.replicas[0][TopicPartition("t", 1)] == 0
    assert found.room_bytes(1) == 0
    assert "the disks of broker 1 are unknown" in caplog.text


@pytest.fixture
def two_brokers(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Broker 0 has many bytes in its first log dir, and broker 1 in its second."""
    with barnabas_cluster(tmp_path, brokers=2, properties={"default.replication.factor": "2"}, log_dirs=2) as running:
        with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
            for broker_id in running.brokers:
                heavy, light = heavy_and_light(running, broker_id)
                fill(admin, broker_id, heavy, light)
        yield running


def heavy_and_light(cluster: BarnabasCluster, broker_id: int) -> tuple[Path, Path]:
    found = cluster.log_dirs(broker_id)
    return found[broker_id], found[1 - broker_id]


def test_each_broker_gets_the_log_dirs_of_its_replicas_before_they_are_created(two_brokers: BarnabasCluster) -> None:
    with ClusterAdmin(two_brokers.bootstrap, SystemClock()) as admin:
        for partitions in (2, 3):
            resources = wanted(partitions, brokers=2, log_dirs_placement="least-bytes")
            reconcile_topics(admin, resources, NOW, Seen(admin.cluster_state()))
            two_brokers.wait_until_full("told")
            for broker_id in two_brokers.brokers:
                assert list(map(told_in, heavy_and_light(two_brokers, broker_id))) == [[], told(partitions)]


def test_the_state_is_gathered_if_the_first_broker_has_died_and_is_not_fenced_yet(
    two_brokers: BarnabasCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ClusterAdmin(two_brokers.bootstrap, SystemClock()) as admin:
        before = admin.cluster_state()
        described = admin.client.describe_cluster()
        described["brokers"].sort(key=lambda broker: broker["broker_id"] == described["controller_id"])
        first = described["brokers"][0]["broker_id"]
        two_brokers.kill(first)
        monkeypatch.setattr(admin.client, "describe_cluster", lambda: described)
        state = admin.cluster_state()
    assert (state.racks, state.default_replication_factor) == (before.racks, 2)
    assert f"broker {first} does not report its settings; asking the next broker" in caplog.text


def state_if_reachable(admin: ClusterAdmin) -> ClusterState | None:
    """Return the state, or None if a broker did not answer."""
    with suppress(ClusterUnreachable):
        return admin.cluster_state()
    return None


def test_the_state_is_gathered_after_the_controller_was_killed(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=3) as running, ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        gone = admin.cluster_state().controller_id
        assert gone is not None
        running.kill(gone)
        # A first attempt may still ask the broker that has died, and fail; the next one asks the others.
        state = wait_for(lambda: state_if_reachable(admin), lambda found: found is not None)
        assert state is not None
        assert state.registered == set(running.brokers)


def test_a_broker_that_does_not_answer_chooses_the_log_dirs_of_a_new_topic_itself(
    two_brokers: BarnabasCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with ClusterAdmin(two_brokers.bootstrap, SystemClock()) as admin:
        seen = Seen(admin.cluster_state())
        (gone,) = two_brokers.brokers.keys() - {seen.state.controller_id}
        two_brokers.kill(gone)
        resources = wanted(2, brokers=2, log_dirs_placement="least-bytes")
        outcome = reconcile_topics(admin, resources, NOW, seen)
    assert [type(step) for step in outcome.done] == [CreateTopic]
    assert f"broker {gone} does not answer and will choose the log dirs of 2 new replicas by itself: " in caplog.text
    two_brokers.start(gone)
    two_brokers.wait_until_full("told")
    assert list(map(told_in, heavy_and_light(two_brokers, 1 - gone))) == [[], told(2)]
    assert list(map(told_in, heavy_and_light(two_brokers, gone))) == [told(2), []]
