"""The time of day as Kubernetes writes it. Pure: who asks has a clock."""

from datetime import UTC, datetime


def utc_moment(now_ms: int) -> datetime:
    """Return the moment, as certificates have it. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def time_text(now_ms: int) -> str:
    """RFC 3339 in UTC, to the second: a `Time` of Kubernetes. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time_text(now_ms: int) -> str:
    """The same with a fraction: a `MicroTime` of Kubernetes."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_between(first: str, last: str) -> int:
    """Return the seconds between two times in RFC 3339; negative if the last is earlier."""
    return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds())


def epoch_s(text: str) -> float:
    """Seconds since the epoch, of a time in RFC 3339."""
    return datetime.fromisoformat(text).timestamp()
