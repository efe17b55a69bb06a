"""What the open files of a broker are for."""

import pytest

from barnabas_broker.app.main import share_out


@pytest.mark.parametrize(
    ("total", "segments", "connections"),
    [(1, 1, 1), (64, 16, 1), (300, 75, 161), (1_024, 256, 640), (1_048_576, 262_144, 655_360)],
)
def test_segments_and_connections_leave_a_reserve(total: int, segments: int, connections: int) -> None:
    assert share_out(total) == (total, segments, connections)
