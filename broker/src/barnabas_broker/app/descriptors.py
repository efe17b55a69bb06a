"""What the file descriptors of the process are for: segments, connections, and a reserve for all else."""

import resource
from typing import Final, NamedTuple

RESERVE_MIN: Final = 64
"""For the metadata store, the helper, checkpoints, links to other brokers, and what is opened for a moment."""
RESERVE_SHARE: Final = 8
SEGMENTS_SHARE: Final = 4
UNLIMITED: Final = 1 << 20


class Descriptors(NamedTuple):
    """How many there may be at once, and of these how many segments and connections."""

    total: int
    segments: int
    connections: int


def share_out(total: int) -> Descriptors:
    """Half for segments, an eighth in reserve, the rest for connections; at least one of each."""
    segments = max(total // SEGMENTS_SHARE, 1)
    reserve = max(total // RESERVE_SHARE, RESERVE_MIN)
    return Descriptors(total, segments, max(total - segments - reserve, 1))


def take_all() -> Descriptors:
    """Raise the limit of open files as far as the system lets a process, and share it out."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return share_out(UNLIMITED if hard == resource.RLIM_INFINITY else hard)
