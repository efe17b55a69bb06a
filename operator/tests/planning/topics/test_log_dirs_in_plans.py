"""F26, F64: the log dir of its broker in which each new replica is placed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.placement import LogDirLoad
from barnabas_operator.planning.cluster_state import TopicState
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    NewReplica,
    TopicStep,
    new_replicas,
    place_in_log_dirs,
)
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta

GIB = 2**30
TOPICS = {"there": TopicState("id", ((0, 1), (1, 0)), {})}
STEPS = (
    CreateTopic("new", ((0, 1),), {}),
    IncreasePartitions("there", 3, ((1, 2),)),
    MoveReplicas("there", {1: (1, 2)}),
    AlterConfigs("there", {"retention.ms": "5"}),
    DeleteTopic("there", "id"),
)


def load(path: str, partitions: int, size_bytes: int = 0, free_bytes: int = 9 * GIB) -> LogDirLoad:
    return LogDirLoad(path, partitions, 0 if size_bytes else partitions, size_bytes, free_bytes)


def replicas(count: int, topic: str = "t", broker_id: int = 0) -> list[NewReplica]:
    return [NewReplica(topic, number, broker_id) for number in range(count)]


def cluster(**config: str | int) -> Cluster:
    named: dict[str, str | float | bool | None] = {key.replace("_", "."): value for key, value in config.items()}
    return Cluster(metadata=ObjectMeta(name="c"), spec=ClusterSpec(config=named))


def test_only_replicas_that_a_broker_does_not_have_yet_are_new() -> None:
    assert new_replicas(STEPS, TOPICS) == {
        0: [NewReplica("new", 0, 0)],
        1: [NewReplica("new", 0, 1), NewReplica("there", 2, 1)],
        2: [NewReplica("there", 2, 2), NewReplica("there", 1, 2)],
    }


def test_each_replica_goes_to_the_log_dir_with_the_fewest_and_counts_for_the_next() -> None:
    placed = place_in_log_dirs(replicas(4), [load("a", 2), load("b", 0)], cluster())
    assert list(placed.values()) == ["b", "b", "a", "b"]


def test_an_added_log_dir_gets_all_replicas_until_it_no_longer_has_the_fewest() -> None:
    """Kafka's rule: partitions are counted and not bytes."""
    there = [load("a", 4, size_bytes=1), load("b", 5), load("added", 0)]
    placed = list(place_in_log_dirs(replicas(6), there, cluster()).values())
    assert placed == ["added"] * 4 + ["a", "added"]


def test_added_partitions_count_together_with_those_of_new_topics() -> None:
    steps: list[TopicStep] = [IncreasePartitions("there", 4, ((2,), (2,))), CreateTopic("new", ((2,), (2,)), {})]
    found = new_replicas(steps, TOPICS)[2]
    assert found == [*(NewReplica("there", number, 2) for number in (2, 3)), *replicas(2, "new", 2)]
    assert list(place_in_log_dirs(found, [load("a", 0), load("b", 0)], cluster()).values()) == ["a", "b", "a", "b"]


@pytest.mark.parametrize(("rule", "path"), [("fewest-partitions", "many"), ("least-bytes", "big")])
def test_the_placement_rule_is_a_setting_of_the_cluster(rule: str, path: str) -> None:
    loads = [load("big", 9, size_bytes=GIB), load("many", 3, size_bytes=5 * GIB)]
    placed = place_in_log_dirs(replicas(1), loads, cluster(log_dirs_placement=rule))
    assert list(placed.values()) == [path]


@pytest.mark.parametrize(("headroom_bytes", "path"), [(1, "small"), (2 * GIB, "large")])
def test_a_full_log_dir_gets_no_new_replicas(headroom_bytes: int, path: str) -> None:
    settings = cluster(log_dirs_placement="least-bytes", log_dirs_headroom_bytes=headroom_bytes)
    loads = [load("large", 1, size_bytes=GIB), load("small", 0, free_bytes=GIB)]
    assert list(place_in_log_dirs(replicas(1), loads, settings).values()) == [path]


@pytest.mark.parametrize("log_dirs", [[], [load("a", 0)]])
def test_no_log_dir_is_chosen_for_a_broker_with_at_most_one(log_dirs: list[LogDirLoad]) -> None:
    assert place_in_log_dirs(replicas(2), log_dirs, cluster()) == {}


LOADS = st.lists(st.integers(0, 20), min_size=2, max_size=5).map(
    lambda counts: [load(f"/{number}", count) for number, count in enumerate(counts)]
)


@given(LOADS, st.integers(0, 40))
def test_a_log_dir_that_gets_replicas_ends_with_at_most_one_more_than_any_other(
    there: list[LogDirLoad], added: int
) -> None:
    placed = place_in_log_dirs(replicas(added), there, cluster())
    assert list(placed) == replicas(added)
    assert placed == place_in_log_dirs(replicas(added), list(there), cluster())
    got = Counter(placed.values())
    ends = {each.path: each.partitions + got[each.path] for each in there}
    assert all(ends[path] <= min(ends.values()) + 1 for path in got)
