"""Java's String.hashCode, and the coordinator's partition that it chooses; Java printed the expected values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.topic_partition import coordinator_partition, string_hash

# The text, its hashCode, and its coordinator among 50 partitions.
FROM_JAVA = [
    ("", 0, 0),
    ("a", 97, 47),
    ("ab", 3105, 5),
    ("abc", 96354, 4),
    ("abcd", 2987074, 24),
    ("foobar", -1268878963, 13),
    ("21", 1599, 49),
    ("a-little-bit-long-string", -865776169, 19),
    ("a-little-bit-longer-string", -1512594870, 20),
    ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -305440039, 39),
    ("flights", -771814909, 9),
    ("日本語", 25921943, 43),
    ("\N{GRINNING FACE}", 1772899, 49),
    ("polygenelubricants", -2147483648, 0),
    ("my-group", -1906497762, 12),
]


@pytest.mark.parametrize(("text", "hash_code", "coordinator"), FROM_JAVA)
def test_hashes_equal_those_of_java(text: str, hash_code: int, coordinator: int) -> None:
    assert string_hash(text) == hash_code
    assert coordinator_partition(text, 50) == coordinator


@given(st.text(), st.integers(1, 1000))
def test_a_coordinator_is_always_one_of_the_partitions(group: str, partitions: int) -> None:
    assert 0 <= coordinator_partition(group, partitions) < partitions
