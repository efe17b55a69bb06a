"""The admin adapter: steps change the cluster, and a broker's refusal comes back with Kafka's code and message."""

from collections.abc import Callable, Iterator

import pytest

from barnabas_core.errors import ErrorCode
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, ClusterUnreachable, StepRefused
from barnabas_operator.planning.steps import AlterConfigs, CreateTopic, DeleteTopic, IncreasePartitions, Step
from harness.running_up import RunningUp


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    running = RunningUp(tmp_path_factory.mktemp("up"))
    running.start()
    yield running
    running.close()


@pytest.fixture
def admin(cluster: RunningUp) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(cluster.bootstrap) as connected:
        yield connected


def test_each_step_shows_in_the_state_that_is_gathered_after_it(admin: ClusterAdmin) -> None:
    admin.apply(CreateTopic("grown", ((0,), (0,)), {"retention.ms": "1000", "cleanup.policy": "compact"}))
    first = admin.cluster_state({"grown"}).topics["grown"]
    assert (first.partitions, first.replication_factor, first.mixed) == (((0,), (0,)), 1, False)
    assert first.overrides == {"retention.ms": "1000", "cleanup.policy": "compact"}
    admin.apply(IncreasePartitions("grown", 3, ((0,),)))
    admin.apply(AlterConfigs("grown", {"retention.ms": None, "segment.ms": "60000"}))
    state = admin.cluster_state({"grown"})
    assert len(state.topics["grown"].partitions) == 3
    assert state.topics["grown"].overrides == {"cleanup.policy": "compact", "segment.ms": "60000"}
    assert (state.racks, state.num_partitions, state.default_replication_factor) == ({0: None}, 1, 1)
    admin.apply(DeleteTopic("grown"))
    assert "grown" not in admin.cluster_state({"grown"}).topics


def test_configs_are_only_gathered_of_the_topics_asked_for(admin: ClusterAdmin) -> None:
    admin.apply(CreateTopic("other", ((0,),), {"retention.ms": "1000"}))
    assert admin.cluster_state(set()).topics["other"].overrides == {}


REFUSED: dict[str, tuple[Step, ErrorCode]] = {
    "a topic that is there": (CreateTopic("there", ((0,),), {}), ErrorCode.TOPIC_ALREADY_EXISTS),
    "a broker that is not": (CreateTopic("x", ((7,),), {}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a bad name": (CreateTopic("a b", ((0,),), {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a bad config at creation": (CreateTopic("x", ((0,),), {"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
    "fewer partitions": (IncreasePartitions("there", 1, ()), ErrorCode.INVALID_PARTITIONS),
    "partitions of no topic": (IncreasePartitions("nowhere", 2, ((0,),)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a bad config": (AlterConfigs("there", {"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
    "an unknown config": (AlterConfigs("there", {"nope": "x"}), ErrorCode.INVALID_CONFIG),
    "the config of no topic": (AlterConfigs("nowhere", {"retention.ms": "1"}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "the deletion of no topic": (DeleteTopic("nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
}


@pytest.mark.parametrize(("step", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_carries_kafkas_code(admin: ClusterAdmin, step: Step, code: ErrorCode) -> None:
    if "there" not in admin.cluster_state(set()).topics:
        admin.apply(CreateTopic("there", ((0,), (0,)), {}))
    with pytest.raises(StepRefused) as refused:
        admin.apply(step)
    assert refused.value.code == code
    assert str(refused.value).startswith(f"{code.name} ({code.value})")


CONNECTS: dict[str, Callable[[], object]] = {
    "nobody listens": lambda: ClusterAdmin("127.0.0.1:1", connect_timeout_s=0.5),
    "no such host": lambda: ClusterAdmin("nowhere.invalid:9092", connect_timeout_s=0.5),
}


@pytest.mark.parametrize("connect", CONNECTS.values(), ids=CONNECTS.keys())
def test_a_cluster_that_does_not_answer_is_unreachable(connect: Callable[[], object]) -> None:
    with pytest.raises(ClusterUnreachable):
        connect()
