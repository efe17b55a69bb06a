"""The choice of a log dir for a new partition (F26)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.placement import LogDirLoad, choose_log_dir

GIB = 1024**3


def load(path: str, partitions: int, size_gib: float = 0, empty: int = 0, free_gib: float = 100) -> LogDirLoad:
    return LogDirLoad(path, partitions, empty, int(size_gib * GIB), int(free_gib * GIB))


def test_fewest_partitions_counts_partitions_and_not_bytes() -> None:
    dirs = [load("/a", 3, 0.1), load("/b", 2, 900), load("/c", 4)]
    assert choose_log_dir("fewest-partitions", dirs, GIB) == "/b"


def test_the_first_of_equal_dirs_is_chosen() -> None:
    assert choose_log_dir("fewest-partitions", [load("/a", 2), load("/b", 2)], GIB) == "/a"


def test_least_bytes_counts_bytes_and_not_partitions() -> None:
    dirs = [load("/a", 3, 10), load("/b", 2, 900), load("/c", 4, 20)]
    assert choose_log_dir("least-bytes", dirs, GIB) == "/a"


def test_a_disk_without_headroom_is_the_last_choice() -> None:
    nearly_full = load("/a", 1, 1, free_gib=0.5)
    assert choose_log_dir("least-bytes", [nearly_full, load("/b", 9, 90)], GIB) == "/b"
    assert choose_log_dir("least-bytes", [nearly_full], GIB) == "/a"


@pytest.mark.parametrize("placement", ["fewest-partitions", "least-bytes"])
def test_a_broker_without_a_log_dir_reports_a_storage_error(placement: str) -> None:
    with pytest.raises(ApiError) as refused:
        choose_log_dir(placement, [], GIB)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@given(st.lists(st.integers(0, 50), min_size=2, max_size=6), st.integers(1, 100))
def test_many_new_partitions_do_not_all_go_to_one_dir(sizes_gib: list[int], added: int) -> None:
    """A new partition counts as an average one: no chosen dir exceeds the least by more than one of average size."""
    dirs = [load(f"/{number}", 1, size) for number, size in enumerate(sizes_gib)]
    average = max(1, sum(each.log_bytes for each in dirs) // len(dirs))
    for _ in range(added):
        chosen = choose_log_dir("least-bytes", dirs, 0)
        dirs = [
            each._replace(partitions=each.partitions + 1, empty_partitions=each.empty_partitions + 1)
            if each.path == chosen
            else each
            for each in dirs
        ]
    got_some = [each.log_bytes + average * each.empty_partitions for each in dirs if each.empty_partitions]
    least = min(each.log_bytes + average * each.empty_partitions for each in dirs)
    assert max(got_some) <= least + average
