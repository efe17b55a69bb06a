"""F64: the operator's choice of log dirs reaches the brokers; where it cannot, topics are made all the same."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.errors import KafkaTimeoutError

from barnabas_core.errors import ErrorCode
from barnabas_core.log_dir_placement import LogDirLoad
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.disk_space import DiskSpace, Partition
from barnabas_operator.planning.topics.log_dir_placement import NewReplica
from barnabas_operator.planning.topics.topic_steps import CreateTopic, IncreasePartitions, TopicStep
from barnabas_operator.reconcile.topics.reconcile_topics import reconcile_topics
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.topic import ConfigValue, Topic, TopicSpec
from harness.running_up import RunningUp
from harness.stock_client import StockClient

NOW = "2026-01-01T00:00:00Z"
TWO_DISKS = Storage(volumes=(Volume(id=0), Volume(id=1)))
HEAVY, LIGHT = b"x" * 500_000, b"x"


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

    def cluster_state(self, _with_configs: object) -> ClusterState:
        return ClusterState({0: None, 1: None}, dict(self.topics), 1, 2, 1)

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
    return reconcile_topics(cast(ClusterAdmin, admin), resources, NOW).wanted


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningUp]:
    up = RunningUp(tmp_path)
    up.start()
    yield up
    up.close()


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
            reconcile_topics(admin, wanted(partitions, log_dirs_placement="least-bytes"), NOW)
            assert len(list(Path(second).glob("told-*"))) == partitions
        assert list(Path(first).glob("told-*")) == []


def test_a_replica_that_moves_between_log_dirs_counts_where_it_goes() -> None:
    def described(log_dir: str, error_code: int, *replicas: tuple[int, int, bool]) -> dict[str, object]:
        keys = ("partition_index", "partition_size", "is_future_key")
        topic = {"name": "t", "partitions": [dict(zip(keys, replica, strict=True)) for replica in replicas]}
        return {"log_dir": log_dir, "error_code": error_code, "topics": [topic], "usable_bytes": 7}

    online = described("/a", 0, (0, 50, False), (1, 0, False)), described("/b", 0, (0, 20, True), (2, 5, False))
    answer = {"broker": 0, "log_dirs": [*online, described("/c", ErrorCode.KAFKA_STORAGE_ERROR)]}
    client = SimpleNamespace(describe_log_dirs=lambda brokers: [answer])
    found = ClusterAdmin.log_dirs(cast(ClusterAdmin, SimpleNamespace(client=client)), 0)
    assert found == [LogDirLoad("/a", 1, 1, 0, 7), LogDirLoad("/b", 2, 0, 25, 7)]


def test_disks_are_those_of_the_brokers_that_answer(caplog: pytest.LogCaptureFixture) -> None:
    keys = ("partition_index", "partition_size", "is_future_key")

    def described(log_dir: str, error_code: int, *replicas: tuple[int, int, bool]) -> dict[str, object]:
        topic = {"name": "t", "partitions": [dict(zip(keys, replica, strict=True)) for replica in replicas]}
        space = {"usable_bytes": 7, "total_bytes": 9}
        return {"log_dir": log_dir, "error_code": error_code, "topics": [topic], **space}

    def answer(brokers: list[int]) -> list[dict[str, object]]:
        if brokers == [1]:
            raise KafkaTimeoutError
        failed = described("/c", ErrorCode.KAFKA_STORAGE_ERROR, (3, 99, False))
        return [{"log_dirs": [described("/a", 0, (0, 50, False), (1, 20, True)), described("/b", 0), failed]}]

    client = SimpleNamespace(describe_log_dirs=answer)
    found = ClusterAdmin.disks(cast(ClusterAdmin, SimpleNamespace(client=client)), [0, 1])
    assert found.spaces == {0: (DiskSpace(7, 9), DiskSpace(7, 9))}
    assert found.replicas == {0: {Partition("t", 0): 50}}
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
