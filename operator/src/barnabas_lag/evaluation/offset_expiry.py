"""The time when a group loses its committed offsets: without members they are kept for a time only (KIP-211).

The protocol has neither the time of a commit nor the time at which the last member left. So the time counts from what
was seen, and the result is an upper bound.
"""

from collections.abc import Iterable

from barnabas_lag.evaluation.readings import GroupReading


def may_expire(group: GroupReading) -> bool:
    """True if there are offsets that nobody uses now, as far as the cluster reports."""
    return not group.has_members and bool(group.committed)


def expire_s(retention_s: float, seen_since_s: float, moves_s: Iterable[float], now_s: float) -> float:
    """Return the seconds until the offsets expire, at most: never below 0, never more than `retention_s`.

    The group has been seen without members since `seen_since_s`, and its commits at `moves_s`; both and `now_s` are
    seconds since the epoch. A commit restarts the time: it does for a group that never had members, and in others a
    member may have come, committed and left between two looks.
    """
    idle_s = now_s - max((seen_since_s, *moves_s))
    return min(max(0.0, retention_s - idle_s), retention_s)
