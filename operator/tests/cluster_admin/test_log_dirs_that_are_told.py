"""F64: the operator's choice of log dirs reaches the brokers; where it cannot, topics are made all the same."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas_core.log_dir_placement import LogDirLoad
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.disk_space import Partition
from barnabas_operator.planning.rebalance_request import NamedRebalance, PlannedPartition, SkewPlan
from barnabas_operator.planning.topics.log_dir_moves import LogDirMove
from barnabas_operator.planning.topics.log_dir_placement import NewReplica
from barnabas_operator.planning.topics.named_rebalance import NamedProgress
from barnabas_operator.planning.topics.topic_steps import CreateTopic, IncreasePartitions, TopicStep
from barnabas_operator.reconcile.kind_reconciler import Seen
from barnabas_operator.reconcile.topics.reconcile_topics import reconcile_topics
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.topic import ConfigValue, Topic, TopicSpec
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.running_up import RunningUp
from harness.stock_client import StockClient

NOW = "2026-01-01T00:00:00Z"
TWO_DISKS = Storage(volumes=(Volume(id=0), Volume(id=1)))
HEAVY, LIGHT = b"x" * 500_000, b"x"
HEAVY_ONES = 20
"""A move that lacks less than 4 MiB is done at once, however slow it is to be."""


def wanted(partitions: int, storage: Storage = TWO_DISKS, brokers: int = 1, **config: str) -> DesiredState:
    """One Topic, `told`, in a Cluster whose settings may differ from those of its brokers."""
    named: dict[str, ConfigValue] = {name.replace("_", "."): value for name, value in config.items()}
    spec = ClusterSpec(brokers=Brokers(replicas=brokers), storage=storage, config=named)
    topic = Topic(metadata=ObjectMeta(name="told", uid="1"), spec=TopicSpec(partitions=partitions))
    return DesiredState(Cluster(metadata=ObjectMeta(name="c"), spec=spec), (topic,), ())


class TwoBrokers:
    """An admin client of brokers 0 and 1 with two empty log dirs each; it takes note of what brokers are told."""

    def __init__(self, mute: int | None = None) -> None:
        self.mute = mute
        self.told: dict[NewReplica, str] = {}
        self.steps: list[TopicStep] = []
        self.topics: dict[str, TopicState] = {}

    def cluster_state(self) -> ClusterState:
        return ClusterState({0: None, 1: None}, dict(self.topics), 1, 2, 1)

    def with_overrides(self, state: ClusterState, _names: object) -> ClusterState:
        return state

    def log_dirs(self, broker_id: int) -> list[LogDirLoad]:
        if broker_id == self.mute:
            raise ClusterUnreachable("no answer after 10 s")
        return [LogDirLoad(f"/{name}", 0, 0, 0, 1) for name in "ab"]

    def prefer_log_dirs(self, placed: Mapping[NewReplica, str]) -> None:
        self.told |= placed

    def apply(self, steps: Sequence[TopicStep]) -> Mapping[str, Any]:
        for step in steps:
            self.steps.append(step)
            if isinstance(step, (CreateTopic, IncreasePartitions)):
                had = self.topics[step.topic].partitions if step.topic in self.topics else ()
                self.topics[step.topic] = TopicState("id", had + step.assignments, {})
        return {}


def reconciled(admin: TwoBrokers, resources: DesiredState) -> DesiredState:
    return reconcile_topics(cast(ClusterAdmin, admin), resources, NOW, Seen(admin.cluster_state())).wanted


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningUp]:
    up = RunningUp(tmp_path)
    up.start()
    yield up
    up.close()


def test_a_plan_moves_a_replica_to_another_log_dir_of_its_broker(running: RunningUp) -> None:
    """Also of the only broker."""
    with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        first, second = (load.path for load in admin.log_dirs(0))
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
        assert [Partition("told", 0) in found[path].replicas for path in (first, second)] == [False, True]
        assert client.read("told") == [HEAVY] * HEAVY_ONES
        nowhere = LogDirMove(Partition("told", 0), 0, "/nowhere")
        (refusal,) = admin.move_between_log_dirs([nowhere])
        assert refusal == "could not move told-0 on broker 0 to /nowhere: LogDirNotFoundError"


def test_new_topics_and_added_partitions_are_made_where_the_operator_chose_and_not_the_broker(
    running: RunningUp,
) -> None:
    """The brokers go by the fewest partitions, which is the first log dir, the operator by bytes: the second."""
    with ClusterAdmin(running.bootstrap, SystemClock()) as admin:
        first, second = (load.path for load in admin.log_dirs(0))
        admin.prefer_log_dirs({NewReplica("heavy", 0, 0): first, NewReplica("light", 0, 0): second})
        admin.prefer_log_dirs({NewReplica("light", number, 0): second for number in range(9)})
        admin.apply([CreateTopic("heavy", ((0,),), {}), CreateTopic("light", ((0,),) * 9, {})])
        client = StockClient(running.bootstrap)
        client.write("heavy", [HEAVY], 0)
        for number in range(9):
            client.write("light", [LIGHT], number)
        for partitions in (1, 3):
            seen = Seen(admin.cluster_state())
            reconcile_topics(admin, wanted(partitions, log_dirs_placement="least-bytes"), NOW, seen)
            assert len(list(Path(second).glob("told-*"))) == partitions
        assert list(Path(first).glob("told-*")) == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Two brokers with three log dirs each, between which replicas move so slowly that they never arrive."""
    settings = {"replica.alter.log.dirs.io.max.bytes.per.second": "1"}
    with barnabas_cluster(tmp_path, brokers=2, properties=settings, log_dirs=3) as running:
        yield running


def make_one_that_moves(admin: ClusterAdmin, cluster: BarnabasCluster) -> list[str]:
    """The log dirs of broker 0: partition 0 moves from the first to the second, 1 is empty, the third has failed."""
    first, second, third = (load.path for load in admin.log_dirs(0))
    admin.prefer_log_dirs({NewReplica("t", number, 0): first for number in range(2)})
    cluster.create_topic("t", 2, assignment=[[0], [0]])
    cluster.client().write("t", [HEAVY] * HEAVY_ONES, 0)
    admin.prefer_log_dirs({NewReplica("t", 0, 0): second})
    Path(third).rename(f"{third}-away")
    wait_for(lambda: [load.path for load in admin.log_dirs(0)], lambda paths: paths == [first, second])
    assert list(Path(second).glob("t-0.*-future")), "it is on its way"
    return [first, second]


def test_a_replica_that_moves_between_log_dirs_counts_where_it_goes(cluster: BarnabasCluster) -> None:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
        paths = make_one_that_moves(admin, cluster)
        found = admin.log_dirs(0)
    assert [(load.path, load.partitions) for load in found] == [(path, 1) for path in paths]
    assert (found[0].empty_partitions, found[0].log_bytes) == (1, 0)
    assert min(load.free_bytes for load in found) > 0


def test_disks_are_those_of_the_brokers_that_answer(cluster: BarnabasCluster, caplog: pytest.LogCaptureFixture) -> None:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as admin:
        make_one_that_moves(admin, cluster)
        cluster.kill(1)
        found = admin.disks([0, 1])
    assert [len(spaces) for spaces in found.spaces.values()] == [2]
    assert all(0 < space.usable_bytes < space.total_bytes for space in found.spaces[0])
    assert found.replicas.keys() == {0}
    assert found.replicas[0][Partition("t", 0)] > HEAVY_ONES * len(HEAVY), "the whole one, not what has moved so far"
    assert found.replicas[0][Partition("t", 1)] == 0
    assert found.room_bytes(1) == 0
    assert "broker 1 gets no replicas now: it does not report its free space" in caplog.text


def test_each_broker_is_told_of_its_own_replicas_before_they_are_made() -> None:
    admin = TwoBrokers()
    known = reconciled(admin, wanted(2, brokers=2))
    replicas = [NewReplica("told", number, broker) for number in range(2) for broker in range(2)]
    assert {replica: admin.told[replica] for replica in replicas} == admin.told
    assert [admin.told[NewReplica("told", number, 1)] for number in range(2)] == ["/a", "/b"]
    (topic,) = known.topics
    grown = wanted(3, brokers=2).topics[0].spec
    admin.told.clear()
    reconciled(
        admin, DesiredState(known.cluster, (Topic(metadata=topic.metadata, spec=grown, status=topic.status),), ())
    )
    assert admin.told == {NewReplica("told", 2, 0): "/a", NewReplica("told", 2, 1): "/a"}


def test_a_broker_that_does_not_answer_chooses_itself_and_the_topic_is_made(caplog: pytest.LogCaptureFixture) -> None:
    admin = TwoBrokers(mute=0)
    reconciled(admin, wanted(2, brokers=2))
    assert [type(step) for step in admin.steps] == [CreateTopic]
    assert {replica.broker_id for replica in admin.told} == {1}
    assert "broker 0 chooses the log dirs of 2 replicas: no answer after 10 s" in caplog.text


def test_brokers_with_one_disk_are_asked_nothing() -> None:
    admin = TwoBrokers(mute=0)
    reconciled(admin, wanted(2, Storage(), brokers=2))
    assert [type(step) for step in admin.steps] == [CreateTopic]
    assert admin.told == {}
