"""The time until a group without members loses its committed offsets (KIP-211).

The protocol reports neither the time of a commit nor the time at which the last member left. The exporter therefore
counts from the moment at which it first saw the group without members or last saw a new commit, whichever is later.
The true moment may be earlier, so the result is an upper bound.
"""

from collections.abc import Iterable

from barnabas_lag.evaluation.readings import GroupReading


def may_expire(group: GroupReading) -> bool:
    """True if the group has committed offsets but no members, as far as the cluster reports."""
    return not group.has_members and bool(group.committed)


def expire_s(retention_s: float, seen_since_s: float, moves_s: Iterable[float], now_s: float) -> float:
    """Return the seconds until all committed offsets have expired, between 0 and `retention_s`.

    `seen_since_s` is the time at which the exporter first saw the group without members. `moves_s` has, for each
    partition, the time at which the exporter saw the last commit. These times are in seconds since the epoch. A commit
    restarts the retention time, because a member may have joined, committed and left between two readings of the group.
    """
    idle_s = now_s - max((seen_since_s, *moves_s))
    return min(max(0.0, retention_s - idle_s), retention_s)
