"""The walks of requests and rounds enter no more product files than stored, and one that does is reported."""

from barnabas_core.topic_partition import is_internal
from walks.__main__ import all_walks, bounds, complaints
from walks.profiled import profiled


def test_walks_enter_no_more_files_than_stored() -> None:
    walks = all_walks()
    assert walks.keys() == bounds().keys()
    assert not list(complaints(walks, bounds()))


def test_a_walk_that_enters_one_file_more_is_reported() -> None:
    with profiled() as walk:
        is_internal("flights")
    (complaint,) = complaints({"a name": walk}, {"a name": 0})
    assert complaint.startswith("a name enters 1 files, 0 allowed")
