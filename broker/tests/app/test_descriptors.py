"""The shares of a broker's file descriptors: for segments and for connections."""

import pytest

from barnabas_broker.app.main import share_out


@pytest.mark.parametrize(
    ("total", "segments", "connections"),
    [(1, 1, 1), (64, 16, 1), (300, 75, 161), (1_024, 256, 640), (1_048_576, 262_144, 655_360)],
)
def test_file_descriptors_are_shared_between_segments_and_connections(
    total: int, segments: int, connections: int
) -> None:
    assert share_out(total) == (total, segments, connections)
