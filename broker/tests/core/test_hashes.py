"""Java's String.hashCode and Kafka's murmur2: values that Java printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.java_hash import coordinator_partition, string_hash
from barnabas_core.partitioner import murmur2, partition_for_key

# text, murmur2 of its UTF-8, hashCode, its coordinator among 50 partitions, its partition among 12
FROM_JAVA = [
    ("", 275646681, 0, 0, 9),
    ("a", 2731586172, 97, 47, 4),
    ("ab", 316155434, 3105, 5, 2),
    ("abc", 479470107, 96354, 4, 3),
    ("abcd", 2971317748, 2987074, 24, 8),
    ("foobar", 3504634814, -1268878963, 13, 6),
    ("21", 3321034988, 1599, 49, 0),
    ("a-little-bit-long-string", 3308985760, -865776169, 19, 8),
    ("a-little-bit-longer-string", 2808662467, -1512594870, 20, 11),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 4236069325, -305440039, 39, 5),
    ("flights", 1725552234, -771814909, 9, 6),
    ("日本語", 1431860170, 25921943, 43, 10),
    ("\N{GRINNING FACE}", 131881617, 1772899, 49, 9),
    ("polygenelubricants", 342343466, -2147483648, 0, 2),
    ("my-group", 2667979597, -1906497762, 12, 5),
]


@pytest.mark.parametrize(("text", "murmur", "hash_code", "coordinator", "partition"), FROM_JAVA)
def test_hashes_are_javas(text: str, murmur: int, hash_code: int, coordinator: int, partition: int) -> None:
    assert murmur2(text.encode()) == murmur
    assert string_hash(text) == hash_code
    assert coordinator_partition(text, 50) == coordinator
    assert partition_for_key(text.encode(), 12) == partition


def test_bytes_above_127_count_as_unsigned() -> None:
    assert murmur2(bytes([0, 255, 128, 127, 1])) == 2517859100


@given(st.text(), st.integers(1, 1000))
def test_a_coordinator_is_always_one_of_the_partitions(group: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(group, partitions) < partitions
