"""The file descriptors of the process: for segments, for connections, and a reserve."""

import resource
from typing import Final, NamedTuple

RESERVE_MIN: Final = 64
"""The minimum number of file descriptors in reserve, for the metadata store, helper processes, checkpoints and links to
other brokers."""
RESERVE_SHARE: Final = 8
SEGMENTS_SHARE: Final = 4
UNLIMITED: Final = 1 << 20


class Descriptors(NamedTuple):
    """The number of file descriptors, and its shares for segments and connections."""

    total: int
    segments: int
    connections: int


def share_out(total: int) -> Descriptors:
    """Divide `total`: a quarter for segments, an eighth (at least RESERVE_MIN) in reserve, the rest for connections."""
    segments = max(total // SEGMENTS_SHARE, 1)
    reserve = max(total // RESERVE_SHARE, RESERVE_MIN)
    return Descriptors(total, segments, max(total - segments - reserve, 1))


def take_all() -> Descriptors:
    """Raise the soft limit of open files to the hard limit, and return the result of `share_out` for the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return share_out(UNLIMITED if hard == resource.RLIM_INFINITY else hard)
