"""What the open files of a broker are for."""

import pytest

from barnabas_broker.app.descriptors import share_out


@pytest.mark.parametrize(
    ("total", "segments", "connections"),
    [(1, 1, 1), (64, 32, 1), (300, 150, 86), (1024, 512, 384), (1_048_576, 524_288, 393_216)],
)
def test_segments_and_connections_leave_a_reserve(total: int, segments: int, connections: int) -> None:
    assert share_out(total) == (total, segments, connections)
