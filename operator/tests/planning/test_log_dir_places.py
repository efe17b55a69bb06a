"""F26, F64: which log dir of its broker each new replica goes to."""

import pytest

from barnabas_core.log_dir_placement import LogDirLoad
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.log_dir_places import NewReplica, new_replicas, place_in_log_dirs
from barnabas_operator.planning.steps import AlterConfigs, CreateTopic, DeleteTopic, IncreasePartitions, MoveReplicas
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta

GIB = 2**30
TOPICS = {"there": TopicState("id", ((0, 1), (1, 0)), {})}
STEPS = (
    CreateTopic("new", ((0, 1),), {}),
    IncreasePartitions("there", 3, ((1, 2),)),
    MoveReplicas("there", {1: (1, 2)}),
    AlterConfigs("there", {"retention.ms": "5"}),
    DeleteTopic("there"),
)


def load(path: str, partitions: int, size_bytes: int = 0, free_bytes: int = 9 * GIB) -> LogDirLoad:
    return LogDirLoad(path, partitions, 0 if size_bytes else partitions, size_bytes, free_bytes)


def cluster(**config: str | int) -> Cluster:
    named = {name.replace("_", "."): value for name, value in config.items()}
    return Cluster(metadata=ObjectMeta(name="c"), spec=ClusterSpec(config=named))


def test_new_are_the_replicas_that_a_broker_does_not_have_yet() -> None:
    assert list(new_replicas(STEPS, TOPICS)) == [
        NewReplica("new", 0, 0),
        NewReplica("new", 0, 1),
        NewReplica("there", 2, 1),
        NewReplica("there", 2, 2),
        NewReplica("there", 1, 2),
    ]


def test_each_goes_where_the_fewest_are_and_counts_for_the_next() -> None:
    wanted = [NewReplica("t", number, 0) for number in range(4)]
    placed = place_in_log_dirs(wanted, {0: [load("a", 2), load("b", 0)]}, cluster())
    assert [placed[each] for each in wanted] == ["b", "b", "a", "b"]


@pytest.mark.parametrize(("rule", "path"), [("fewest-partitions", "many"), ("least-bytes", "big")])
def test_the_rule_is_the_clusters_own(rule: str, path: str) -> None:
    loads = [load("big", 9, size_bytes=GIB), load("many", 3, size_bytes=5 * GIB)]
    placed = place_in_log_dirs([NewReplica("t", 0, 0)], {0: loads}, cluster(log_dirs_placement=rule))
    assert list(placed.values()) == [path]


@pytest.mark.parametrize(("headroom_bytes", "path"), [(1, "small"), (2 * GIB, "large")])
def test_a_full_disk_is_left_out(headroom_bytes: int, path: str) -> None:
    settings = cluster(log_dirs_placement="least-bytes", log_dirs_headroom_bytes=headroom_bytes)
    loads = [load("large", 1, size_bytes=GIB), load("small", 0, free_bytes=GIB)]
    assert list(place_in_log_dirs([NewReplica("t", 0, 0)], {0: loads}, settings).values()) == [path]


def test_brokers_with_one_log_dir_and_those_that_said_nothing_are_told_nothing() -> None:
    wanted = [NewReplica("t", 0, 0), NewReplica("t", 0, 1)]
    assert place_in_log_dirs(wanted, {0: [load("a", 0)]}, cluster()) == {}
