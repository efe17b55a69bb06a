"""Conversions between milliseconds since the epoch and the time formats of Kubernetes."""

from datetime import UTC, datetime


def utc_moment(now_ms: int) -> datetime:
    """Return the time as a datetime in UTC; `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def time_text(now_ms: int) -> str:
    """Return a Kubernetes `Time`: RFC 3339 in UTC, in whole seconds. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time_text(now_ms: int) -> str:
    """Return a Kubernetes `MicroTime`: RFC 3339 in UTC, with microseconds. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_between(first: str, last: str) -> int:
    """Return the rounded seconds from `first` to `last`, both in RFC 3339; negative if `last` is earlier."""
    return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds())


def epoch_s(text: str) -> float:
    """Return the seconds from the epoch to a time in RFC 3339."""
    return datetime.fromisoformat(text).timestamp()
