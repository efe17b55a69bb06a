"""Replica placement agrees with Kafka's results and rules."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.placement import assign_replicas, start_index_for_added


def test_placement_equals_the_table_in_kafkas_documentation() -> None:
    assert assign_replicas([0, 1, 2, 3], 5, 3, start_index=3, shift=1) == [
        [3, 1, 2],
        [0, 2, 3],
        [1, 3, 0],
        [2, 0, 1],
        [3, 2, 0],
    ]


def test_racks_alternate_as_in_kafkas_example() -> None:
    racks: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert assign_replicas(list(racks), 6, 3, 0, 0, racks) == [
        [0, 3, 1],
        [3, 1, 5],
        [1, 5, 4],
        [5, 4, 2],
        [4, 2, 0],
        [2, 0, 3],
    ]


KAFKAS_RESULTS = [
    # Racks of brokers 0.., replicas, partitions, start index and shift, first partition, and the result of Kafka 3.9.
    ("r0 r0 r0 r1 r2", 2, 1, 2, 0, [[4, 0]]),
    ("r2 r3 r3 r2 r1 r0 r2 r0 r1", 4, 5, 6, 0, [[3, 2, 5, 4], [2, 6, 5, 4], [6, 5, 4, 1], [5, 4, 0, 1], [4, 0, 1, 7]]),
    ("r0 r2 r1 r2", 4, 2, 2, 0, [[1, 0, 2, 3], [3, 0, 2, 1]]),
    ("r1 r0 r2 r1 r2 r1 r2 r2 r0", 3, 3, 1, 6, [[6, 8, 3], [7, 8, 3], [1, 3, 4]]),
    ("r2 r1", 1, 4, 0, 0, [[1], [0], [1], [0]]),
    ("r2 r1 r0 r1", 1, 3, 1, 0, [[1], [0], [3]]),
    ("r2 r2 r0 r1 r1 r1 r1 r1", 1, 14, 0, 0, [[2], [3], [0], [4], [1], [5], [6], [7], [2], [3], [0], [4], [1], [5]]),
    ("r0 r2 r2 r0 r0 r1 r2 r1", 3, 6, 6, 6, [[7, 1, 3], [2, 3, 7], [4, 6, 5], [6, 0, 5], [0, 5, 1], [5, 1, 3]]),
    ("- - - - - -", 3, 4, 4, 0, [[4, 3, 5], [5, 4, 0], [0, 5, 1], [1, 0, 2]]),
    ("- -", 1, 9, 0, 0, [[0], [1], [0], [1], [0], [1], [0], [1], [0]]),
    ("- - - - - - - - -", 2, 7, 2, 0, [[2, 5], [3, 6], [4, 7], [5, 8], [6, 0], [7, 1], [8, 2]]),
    ("- - - - - -", 1, 13, 5, 0, [[5], [0], [1], [2], [3], [4], [5], [0], [1], [2], [3], [4], [5]]),
    ("- - - -", 1, 11, 2, 3, [[1], [2], [3], [0], [1], [2], [3], [0], [1], [2], [3]]),
]


@pytest.mark.parametrize(("racks", "replicas", "partitions", "start", "first", "expected"), KAFKAS_RESULTS)
def test_placement_equals_that_of_kafka(
    racks: str, replicas: int, partitions: int, start: int, first: int, expected: list[list[int]]
) -> None:
    by_broker = {broker: None if rack == "-" else rack for broker, rack in enumerate(racks.split())}
    assert assign_replicas(list(by_broker), partitions, replicas, start, start, by_broker, first) == expected


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[int, str | None], int, int, int, int]:
    brokers = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=12, unique=True))
    racks = {broker: draw(st.sampled_from([None, "a", "b", "c"])) for broker in sorted(brokers)}
    replicas = draw(st.integers(1, len(brokers)))
    return racks, replicas, draw(st.integers(1, 40)), draw(st.integers(0, 11)), draw(st.integers(0, 11))


@given(clusters())
def test_replicas_of_a_partition_are_on_different_brokers_and_racks(
    cluster: tuple[dict[int, str | None], int, int, int, int],
) -> None:
    racks, replicas, partitions, start, shift = cluster
    rack_count = len(set(racks.values()))
    for row in assign_replicas(list(racks), partitions, replicas, start, shift, racks):
        assert len(row) == len(set(row)) == replicas
        assert len({racks[broker] for broker in row}) == min(replicas, rack_count)


@given(clusters())
def test_leaders_are_spread_evenly(cluster: tuple[dict[int, str | None], int, int, int, int]) -> None:
    racks, replicas, partitions, start, shift = cluster
    leaders = Counter(dict.fromkeys(racks, 0))
    leaders.update(row[0] for row in assign_replicas(list(racks), partitions, replicas, start, shift, racks))
    assert max(leaders.values()) - min(leaders.values()) <= 1


@given(clusters(), st.integers(1, 20))
def test_leaders_stay_evenly_spread_after_partitions_were_added(
    cluster: tuple[dict[int, str | None], int, int, int, int], added: int
) -> None:
    racks, replicas, partitions, start, shift = cluster
    brokers = list(racks)
    first = assign_replicas(brokers, partitions, replicas, start, shift)
    begin = start_index_for_added(brokers, first[0][0])
    more = assign_replicas(brokers, added, replicas, begin, begin, first_partition=partitions)
    leaders = Counter(dict.fromkeys(brokers, 0))
    leaders.update(row[0] for row in first + more)
    assert max(leaders.values()) - min(leaders.values()) <= 1
